/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * From messages and events to one request with marks: when requests begin, end, are answered, acknowledged and read.
 * Pure C: time and sequence numbers are arguments. The parser calls the iw_request_*, iw_response_* and iw_event
 * functions; packet programs call the rest.
 *
 * Life of a request (record.request, one at a time; later requests of a pipeline wait in queue[]):
 *
 *   idle --first request byte--> live --response's last byte--> RESPONSE_DONE --acknowledged / read--> finish
 *                                 live --connection closed-->                                           finish
 *   finish: the packet program emits the record, then iw_flow_next() makes room for the next.
 */
#ifndef INFERWIRE_FLOW_H
#define INFERWIRE_FLOW_H

#include "base.h"

IW_INLINE struct iw_parser *iw_parser_of(struct iw_flow *f, iw_u32 direction) { return &f->parser[direction & 1]; }

/* The direction in which requests travel. */
IW_INLINE iw_u32 iw_request_direction(const struct iw_flow *f) { return f->role == IW_ROLE_CLIENT ? IW_OUT : IW_IN; }

IW_INLINE iw_u32 iw_seq_of(const struct iw_window *w, iw_u32 pos) { return w->seq + (pos - IW_WIN_ROOM); }

/* The head that the request parser is filling: the current request's, or one in the queue. */
IW_INLINE struct iw_request_head *iw_open_head(struct iw_flow *f, const struct iw_parser *p)
{
	iw_u32 slot = p->slot;

	if (slot == 0)
		return &f->record.request.head;
	if (slot <= IW_QUEUE)
		return &f->queue[(slot - 1) & (IW_QUEUE - 1)];
	return 0;
}

/* Flags are set from both directions and from process context at the same time: a plain "|=" would lose some. */
IW_INLINE void iw_flag(struct iw_request_head *head, iw_u32 flag)
{
	if (!(head->flags & flag))
		__sync_fetch_and_or(&head->flags, flag);
}

IW_INLINE void iw_set_live(struct iw_flow *f, iw_u32 live)
{
	f->live = live;
	f->record.conn.request_open = (iw_u8)live;
}

/* Clears the current request. Its arrays are large: word by word keeps this one loop. */
IW_GLOBAL int iw_request_clear(struct iw_flow *f)
{
	iw_u32 i;

	if (!f)
		return 0;
	for (i = 0; i < sizeof(struct iw_request) / 8; i++)
		((iw_u64 *)&f->record.request)[i] = 0;
	f->record.request.queue_ns = ~0ull;
	f->record.request.prefill_ns = ~0ull;
	f->record.request.load_ns = ~0ull;
	f->record.request.tokens_output = ~0u;
	f->record.request.tokens_input = ~0u;
	f->record.request.rtt_min_us = ~0u;
	f->parser[0].pattern.before_bytes = 0;
	f->parser[0].pattern.plain = 0;
	f->parser[1].pattern.before_bytes = 0;
	f->parser[1].pattern.plain = 0;
	f->first_sent = 0;
	f->unacked_tail = f->unacked_head;
	f->finish = 0;
	return 0;
}

/* When the byte before seq was handed to TCP: at its transmission, or earlier if it waited in the send queue. */
IW_INLINE iw_u64 iw_handed(struct iw_flow *f, iw_u32 seq, iw_u64 now_ns)
{
	iw_u64 found = 0;
	iw_u32 i;

	if (!f->sends_head)
		return now_ns;
	for (i = 0; i < IW_SENDS; i++) { /* newest first: the oldest call that reached seq wins */
		struct iw_send *s = &f->sends[(f->sends_head - 1 - i) & (IW_SENDS - 1)];

		if (!s->time_ns || !iw_reached(s->seq, seq))
			break;
		found = s->time_ns;
	}
	return found && found < now_ns ? found : now_ns;
}

/* The response's last byte is before seq. */
IW_INLINE void iw_response_over(struct iw_flow *f, iw_u32 seq, iw_u64 now_ns)
{
	struct iw_request *r = &f->record.request;

	iw_parser_of(f, !iw_request_direction(f))->state = IW_P_START;
	r->end_seq = seq;
	r->end_ns = now_ns;
	r->activity_ns = now_ns;
	if (!r->end_handed_ns)
		r->end_handed_ns = f->role == IW_ROLE_SERVER ? iw_handed(f, seq, now_ns) : now_ns;
	iw_flag(&r->head, IW_REQ_RESPONSE_DONE);
}

/* First byte of a request at w->pos. Returns 1 when the previous one has to be emitted first. */
IW_GLOBAL int iw_request_begin(struct iw_flow *f, struct iw_window *w)
{
	struct iw_request_head *head;
	struct iw_parser *p;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	if (f->live && (f->record.request.head.flags & IW_REQ_RESPONSE_DONE) && f->role == IW_ROLE_CLIENT) {
		/* The client asks again: it has the whole answer, whether or not we saw it read. */
		f->finish = 1;
		return 1;
	}
	if (f->live && !f->queued && !f->dropped && iw_parser_of(f, w->direction ^ 1)->state == IW_P_SCAVENGE) {
		/* The client asks again: the answer whose framing was lost is over. */
		iw_response_over(f, f->expected[(w->direction ^ 1) & 1], f->record.request.activity_ns);
		f->finish = 1;
		return 1;
	}
	f->record.conn.requests++;
	if (!f->live) {
		iw_request_clear(f);
		iw_set_live(f, 1);
		p->slot = 0;
	} else if (f->queued < IW_QUEUE && !f->dropped) {
		f->queued++;
		p->slot = (iw_u8)f->queued;
	} else {
		f->dropped++;
		p->slot = 0xff;
	}
	head = iw_open_head(f, p);
	if (!head)
		return 0;
	head->first_byte_ns = w->now_ns;
	head->last_byte_ns = 0;
	head->body_bytes = 0;
	head->idle_before_ns = 0;
	head->flags = 0;
	head->ordinal = f->record.conn.requests;
	head->method = 0;
	head->route = 0;
	head->has_trace = 0;
	if (p->slot == 0 && f->previous_end_ns && w->now_ns > f->previous_end_ns)
		head->idle_before_ns = w->now_ns - f->previous_end_ns;
	if (p->slot == 0)
		f->record.request.server_fin_ns = f->idle_fin_ns;
	return 0;
}

/* The request's last byte is before seq. */
IW_INLINE void iw_request_over(struct iw_flow *f, struct iw_parser *p, iw_u32 seq, iw_u64 now_ns)
{
	struct iw_request_head *head = iw_open_head(f, p);

	if (head) {
		head->last_byte_ns = now_ns;
		head->end_seq = seq;
		iw_flag(head, IW_REQ_REQUEST_DONE);
	}
	p->state = IW_P_START;
}

IW_INLINE void iw_request_end(struct iw_flow *f, struct iw_window *w, struct iw_parser *p)
{
	iw_request_over(f, p, iw_seq_of(w, w->pos), w->now_ns);
}

#define IW_HEAD_WORDS (sizeof(struct iw_request_head) / 8)
/* Moves the next request of the pipeline up, or leaves the connection idle. */
IW_GLOBAL int iw_flow_next(struct iw_flow *f)
{
	struct iw_parser *p;
	volatile iw_u64 *queue;
	iw_u32 i;

	if (!f)
		return 0;
	f->previous_end_ns = f->record.request.end_ns;
	f->finish = 0;
	if (!f->queued && !f->dropped) {
		iw_set_live(f, 0);
		return 0;
	}
	iw_request_clear(f);
	if (!f->queued) {
		/* Of a request beyond the queue only its place is known; its answer must not go to the next one. */
		f->dropped--;
		f->record.request.head.first_byte_ns = f->previous_end_ns;
		f->record.request.head.flags = IW_REQ_APPROXIMATE;
		f->record.request.head.ordinal = f->record.conn.requests - f->dropped;
		iw_set_live(f, 1);
		return 0;
	}
	/* Word by word (volatile keeps the compiler from making block copies of it, which go by way of the stack). */
	queue = (volatile iw_u64 *)f->queue;
	for (i = 0; i < IW_HEAD_WORDS; i++)
		((volatile iw_u64 *)&f->record.request.head)[i] = queue[i];
	for (i = 0; i < (IW_QUEUE - 1) * IW_HEAD_WORDS; i++)
		queue[i] = queue[i + IW_HEAD_WORDS];
	f->queued--;
	iw_set_live(f, 1);
	p = iw_parser_of(f, iw_request_direction(f));
	if (p->slot && p->slot <= IW_QUEUE)
		p->slot--;
	return 0;
}

/* First byte of a response at w->pos. Returns 1 when the previous request has to be emitted first, 2 when no request
 * is waiting for it. */
IW_INLINE int iw_response_begin(struct iw_flow *f, struct iw_window *w)
{
	if (!f->live)
		return 2;
	if (f->record.request.head.flags & IW_REQ_RESPONSE_DONE) {
		if (!f->queued && !f->dropped)
			return 2;
		/* The next answer of a pipeline starts before the last one was acknowledged. */
		iw_flag(&f->record.request.head, IW_REQ_MARKS_MERGED);
		f->finish = 1;
		return 1;
	}
	(void)w;
	return 0;
}

IW_GLOBAL int iw_response_end(struct iw_flow *f, struct iw_window *w)
{
	if (!f || !w)
		return 0;
	iw_response_over(f, iw_seq_of(w, w->pos), w->now_ns);
	return 0;
}

/* One event of a stream has ended before seq. */
IW_GLOBAL int iw_event(struct iw_flow *f, struct iw_window *w, iw_u32 pos)
{
	struct iw_request *r;
	struct iw_parser *p;
	iw_u32 event, seq;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	event = p->event;
	p->event = 0;
	if (!event)
		return 0;
	w->event = event;
	r = &f->record.request;
	seq = iw_seq_of(w, pos);
	if (event & IW_EV_RESPONSES) {
		/* Responses API: text also comes again in "done" and "completed" events; only deltas are new. */
		event &= ~(IW_EV_CONTENT | IW_EV_REASONING | IW_EV_TOOL);
		if (event & IW_EV_DELTA)
			event |= event & IW_EV_RESPONSES_TOOL	  ? IW_EV_TOOL
				 : event & IW_EV_RESPONSES_REASON ? IW_EV_REASONING
								  : IW_EV_CONTENT;
	}
	if (!(event & (IW_EV_DATA))) {
		if (event & (IW_EV_COMMENT | IW_EV_PING))
			r->comments++;
		w->other = 1;
		return 0;
	}
	r->events++;
	if (event & IW_EV_PING)
		r->comments++;
	if (event & IW_EV_ERROR)
		iw_flag(&r->head, IW_REQ_ERROR_EVENT);
	if (event & IW_EV_USAGE)
		iw_flag(&r->head, IW_REQ_USAGE);
	if (event & (IW_EV_CONTENT | IW_EV_REASONING | IW_EV_TOOL)) {
		r->chunks++;
		w->chunks++;
		w->last_content_seq = seq;
		if (event & IW_EV_CONTENT || event & IW_EV_TOOL) {
			if (!r->output_ns)
				r->output_ns = w->now_ns;
		} else {
			r->chunks_reasoning++;
		}
		if (event & IW_EV_TOOL)
			r->chunks_tool++;
		if (!r->content_ns) {
			r->content_ns = w->now_ns;
			r->first_content_seq = seq;
			r->content_handed_ns = w->now_ns;
			if (f->role == IW_ROLE_SERVER) {
				r->content_handed_ns = iw_handed(f, seq, w->now_ns);
				if (r->content_handed_ns != w->now_ns)
					iw_flag(&r->head, IW_REQ_HANDED_HOOK);
			}
		}
	}
	if (event & IW_EV_END && !(r->head.flags & IW_REQ_END_MARKER)) {
		iw_flag(&r->head, IW_REQ_END_MARKER);
		r->end_handed_ns = f->role == IW_ROLE_SERVER ? iw_handed(f, seq, w->now_ns) : w->now_ns;
	}
	return 0;
}

/* Body bytes of a stream whose events cannot be seen (Content-Encoding): deliveries keep the cadence. */
IW_INLINE void iw_opaque(struct iw_flow *f, struct iw_window *w)
{
	struct iw_request *r = &f->record.request;
	iw_u32 seq = iw_seq_of(w, w->pos);

	w->opaque = 1;
	w->last_content_seq = seq;
	if (!r->content_ns) {
		r->content_ns = w->now_ns;
		r->output_ns = w->now_ns;
		r->first_content_seq = seq;
		r->content_handed_ns = f->role == IW_ROLE_SERVER ? iw_handed(f, seq, w->now_ns) : w->now_ns;
	}
}

/* The bucket of a gap in a histogram with ascending upper edges (le). The gaps of a stream are alike: the last bucket is
 * tried first. */
IW_INLINE iw_u32 iw_gap_bucket(iw_u64 gap_ns, const struct iw_edges *edges, iw_u8 *guess)
{
	iw_u32 low = 0, high, step, middle;

	if (!edges)
		return 0;
	high = edges->count;
	low = *guess &
	      (IW_GAP_EDGES_MAX - 1); /* the edge below; "+ 1" is what every promised kernel's verifier follows */
	if (low + 1 < high && edges->le_ns[low] < gap_ns && gap_ns <= edges->le_ns[low + 1])
		return low + 1;
	low = 0;
	for (step = 0; step < 6 && low < high; step++) {
		middle = (low + high) / 2;
		if (edges->le_ns[middle & (IW_GAP_EDGES_MAX - 1)] < gap_ns)
			low = middle + 1;
		else
			high = middle;
	}
	if (low)
		*guess = (iw_u8)(low - 1);
	return low;
}

/* A packet (or a run of windows of one packet) brought w->chunks content events. */
IW_GLOBAL int iw_delivery(struct iw_flow *f, struct iw_window *w, const struct iw_edges *edges)
{
	struct iw_request *r;
	iw_u32 bucket = 0, n;
	iw_u64 at;

	if (!f || !w || !edges || (!w->chunks && !w->opaque))
		return 0;
	r = &f->record.request;
	n = w->chunks;
	if (n) {
		for (bucket = 0; bucket < IW_BURST_BUCKETS - 1 && n > (1u << bucket); bucket++)
			;
		r->burst[bucket & (IW_BURST_BUCKETS - 1)]++;
	}
	r->deliveries++;
	at = w->now_ns;
	if (f->role == IW_ROLE_SERVER) {
		iw_u32 head = f->unacked_head;

		at = iw_handed(f, w->last_content_seq, w->now_ns);
		if (r->deliveries == 1)
			at = r->content_handed_ns;
		if (head - f->unacked_tail >= IW_UNACKED) {
			head--; /* share the newest mark */
			iw_flag(&r->head, IW_REQ_MARKS_MERGED);
		}
		f->unacked[head & (IW_UNACKED - 1)] = w->last_content_seq;
		if (head == f->unacked_tail)
			f->alone_us = (iw_u32)(w->now_ns / 1000) | 1;
		f->unacked_head = head + 1;
	}
	if (r->last_content_ns && at >= r->last_content_ns) {
		iw_u64 gap = at - r->last_content_ns;
		iw_u64 i = iw_gap_bucket(gap, edges, &f->gap_guess[0]);

		IW_FORGET(i);
		if (f->role == IW_ROLE_SERVER) {
			if (i <= IW_GAP_EDGES_MAX)
				r->gap_sent[i]++;
			r->gap_sent_sum_ns += gap;
			if (gap > r->gap_sent_max_ns)
				r->gap_sent_max_ns = gap;
		} else {
			if (i <= IW_GAP_EDGES_MAX)
				r->gap_delivered[i]++;
			r->gap_delivered_sum_ns += gap;
			if (gap > r->gap_delivered_max_ns)
				r->gap_delivered_max_ns = gap;
		}
	}
	if (at > r->last_content_ns)
		r->last_content_ns = at;
	return 0;
}

/* An acknowledgement up to ack came in. Returns the number of content deliveries that it covers. */
IW_GLOBAL int iw_acknowledged(struct iw_flow *f, iw_u32 ack, iw_u64 now_ns, const struct iw_edges *edges)
{
	struct iw_request *r;
	iw_u32 tail, i, sent_us = 0;
	int covered = 0;

	if (!f || !edges || !f->live)
		return 0;
	r = &f->record.request;
	if (f->role == IW_ROLE_CLIENT) {
		if (!r->request_acked_ns && (r->head.flags & IW_REQ_REQUEST_DONE) && iw_reached(ack, r->head.end_seq))
			r->request_acked_ns = now_ns;
		return 0;
	}
	if (r->response_ns && !r->response_delivered_ns && iw_reached(ack, r->response_seq))
		r->response_delivered_ns = now_ns;
	tail = f->unacked_tail;
	for (i = 0; i < IW_UNACKED; i++) {
		if (tail == f->unacked_head || !iw_reached(ack, f->unacked[tail & (IW_UNACKED - 1)]))
			break;
		covered++;
		tail++;
	}
	if (covered) {
		sent_us = f->alone_us;
		f->alone_us = 0; /* before the tail moves: egress sets it when all is acknowledged */
	}
	f->unacked_tail = tail;
	if (covered) {
		iw_u32 waited_us = sent_us ? (iw_u32)(now_ns / 1000) - sent_us : 0;

		if (!r->content_delivered_ns)
			r->content_delivered_ns = now_ns;
		if (r->last_delivered_ns && now_ns >= r->last_delivered_ns) {
			iw_u64 gap = now_ns - r->last_delivered_ns;
			iw_u64 bucket = iw_gap_bucket(gap, edges, &f->gap_guess[1]);

			IW_FORGET(bucket);
			if (bucket <= IW_GAP_EDGES_MAX)
				r->gap_delivered[bucket]++;
			r->gap_delivered_sum_ns += gap;
			if (gap > r->gap_delivered_max_ns)
				r->gap_delivered_max_ns = gap;
		}
		r->last_delivered_ns = now_ns;
		if (!(r->head.flags & IW_REQ_RETRANSMITTED) && waited_us > 1000 &&
		    waited_us > 2 * (r->rtt_min_us == ~0u ? f->record.conn.handshake_us : r->rtt_min_us))
			iw_flag(&r->head, IW_REQ_LATE_ACKS);
	}
	if ((r->head.flags & IW_REQ_RESPONSE_DONE) && iw_reached(ack, r->end_seq)) {
		if (!r->done_ns)
			r->done_ns = now_ns;
		f->finish = 1;
	}
	return covered;
}

/* The application has read up to copied. */
IW_GLOBAL int iw_read(struct iw_flow *f, iw_u32 copied, iw_u64 now_ns)
{
	struct iw_request *r;

	if (!f || !f->live)
		return 0;
	r = &f->record.request;
	iw_flag(&r->head, IW_REQ_READ_HOOK);
	if (f->role == IW_ROLE_SERVER) {
		if (!r->read_ns && (r->head.flags & IW_REQ_REQUEST_DONE) && iw_reached(copied, r->head.end_seq))
			r->read_ns = now_ns;
		return 0;
	}
	if (!r->response_delivered_ns && r->response_ns && iw_reached(copied, r->response_seq))
		r->response_delivered_ns = now_ns;
	if (!r->content_delivered_ns && r->content_ns && iw_reached(copied, r->first_content_seq))
		r->content_delivered_ns = now_ns;
	if ((r->head.flags & IW_REQ_RESPONSE_DONE) && iw_reached(copied, r->end_seq)) {
		r->done_ns = now_ns;
		f->finish = 1;
	}
	return 0;
}

/* Whether iw_read could learn anything now: lets the read hook leave early. */
IW_INLINE int iw_read_armed(const struct iw_flow *f)
{
	const struct iw_request *r = &f->record.request;

	if (!f->live)
		return 0;
	if (f->role == IW_ROLE_SERVER)
		return !r->read_ns && (r->head.flags & IW_REQ_REQUEST_DONE);
	return (!r->response_delivered_ns && r->response_ns) || (!r->content_delivered_ns && r->content_ns) ||
	       (r->head.flags & IW_REQ_RESPONSE_DONE);
}

/* The phase in which a retransmission falls, from the marks so far. */
IW_INLINE iw_u32 iw_phase_now(const struct iw_flow *f)
{
	const struct iw_request *r = &f->record.request;

	if (f->role == IW_ROLE_CLIENT) {
		if (!(r->head.flags & IW_REQ_REQUEST_DONE) || !r->request_acked_ns)
			return IW_PHASE_UPLOAD;
		if (!r->content_ns)
			return IW_PHASE_SERVER;
		return r->end_handed_ns ? IW_PHASE_DRAIN : IW_PHASE_STREAM;
	}
	if (r->end_handed_ns)
		return IW_PHASE_DRAIN;
	if (r->content_delivered_ns)
		return IW_PHASE_STREAM;
	if (r->content_ns)
		return IW_PHASE_FIRST_DELIVERY;
	return r->head.flags & IW_REQ_REQUEST_DONE ? IW_PHASE_SERVER : IW_PHASE_UPLOAD;
}

/* A side's first FIN or RST. */
IW_INLINE void iw_fin(struct iw_flow *f, iw_u8 side, iw_u32 reset, iw_u64 now_ns)
{
	struct iw_request *r = &f->record.request;

	if (!f->live) {
		if (side == IW_SIDE_SERVER && !f->idle_fin_ns)
			f->idle_fin_ns = now_ns;
		return;
	}
	if (side == IW_SIDE_SERVER && !r->server_fin_ns)
		r->server_fin_ns = now_ns;
	if (side == IW_SIDE_CLIENT && !r->client_fin_ns)
		r->client_fin_ns = now_ns;
	if (reset && !r->reset)
		r->reset = side;
}

/* A connection that was quiet for so long had been put back into a pool. */
#define IW_STALE_IDLE_NS 50000000ull

/* The request was sent on a connection that the server had closed, or closed just then: it never got to it. */
IW_INLINE int iw_reused_too_late(const struct iw_flow *f)
{
	const struct iw_request *r = &f->record.request;
	iw_u64 quick_ns = IW_STALE_IDLE_NS + (iw_u64)(f->srtt_us >> 3) * 2000;

	if (r->response_ns || r->read_ns || r->head.idle_before_ns < IW_STALE_IDLE_NS || !r->server_fin_ns)
		return 0;
	/* A FIN comes after everything that was there has been read; with unread data it is a reset. */
	if (r->request_acked_ns && r->request_acked_ns <= r->server_fin_ns && !r->reset)
		return 0;
	return r->server_fin_ns < r->head.first_byte_ns + quick_ns;
}

/* How a request ended. Called when it is complete or when its connection has closed. */
IW_GLOBAL int iw_settle(struct iw_flow *f, iw_u64 now_ns)
{
	struct iw_request *r;
	iw_u32 flags;
	iw_u64 server, client;

	if (!f)
		return 0;
	r = &f->record.request;
	flags = r->head.flags;
	server = r->server_fin_ns;
	client = r->client_fin_ns;
	if (server || client)
		r->closed_first = server && (!client || server <= client) ? IW_SIDE_SERVER : IW_SIDE_CLIENT;
	if (!(flags & IW_REQ_RESPONSE_DONE) && r->response_ns &&
	    f->parser[!iw_request_direction(f)].state == IW_P_CLOSE && server && !(r->reset)) {
		/* A body without a length ends with the connection. */
		flags |= IW_REQ_RESPONSE_DONE;
		iw_flag(&r->head, IW_REQ_RESPONSE_DONE);
		if (!r->end_ns)
			r->end_ns = r->activity_ns;
		if (!r->end_handed_ns)
			r->end_handed_ns = r->end_ns;
	}
	if (flags & IW_REQ_END_MARKER || (flags & IW_REQ_RESPONSE_DONE && !r->stream))
		r->outcome = flags & IW_REQ_ERROR_EVENT && r->stream ? IW_OUTCOME_ERROR_IN_STREAM : IW_OUTCOME_COMPLETE;
	else if (flags & IW_REQ_UPGRADED)
		r->outcome = IW_OUTCOME_COMPLETE;
	else if (r->stream && client > r->response_ns && client < r->end_ns && !(flags & IW_REQ_ERROR_EVENT))
		r->outcome = IW_OUTCOME_CLIENT_ABORT; /* the server ended the body in answer to it */
	else if (flags & IW_REQ_RESPONSE_DONE)
		r->outcome = flags & IW_REQ_ERROR_EVENT			     ? IW_OUTCOME_ERROR_IN_STREAM
			     : flags & IW_REQ_NO_MARKER_ROUTE || r->encoding ? IW_OUTCOME_COMPLETE
									     : IW_OUTCOME_TRUNCATED_CLEAN;
	else if (iw_reused_too_late(f))
		r->outcome = IW_OUTCOME_RESET_STALE_REUSE;
	else if (client && (!server || client < server))
		r->outcome = IW_OUTCOME_CLIENT_ABORT;
	else if (r->reset)
		r->outcome = r->reset == IW_SIDE_CLIENT ? IW_OUTCOME_CLIENT_ABORT : IW_OUTCOME_RESET;
	else if (!r->response_ns)
		r->outcome = IW_OUTCOME_NO_RESPONSE;
	else
		r->outcome = IW_OUTCOME_TRUNCATED_ABRUPT;
	if (!r->end_ns)
		r->end_ns = r->activity_ns;
	if (!r->done_ns && f->role == IW_ROLE_CLIENT && r->end_ns && (flags & IW_REQ_RESPONSE_DONE))
		r->done_ns = r->end_ns; /* never seen read: the arrival stands for it */
	if (!r->done_ns)
		r->done_ns = r->activity_ns && (flags & IW_REQ_RESPONSE_DONE) ? r->activity_ns : now_ns;
	return 0;
}

/* ---- Putting segments in order ---- */

/* A hole: bytes up to seq will not be seen. Where the framing says how many bytes follow, they are skipped and only the
 * line is lost; else the framing is. Returns 1 if anything that would have been looked at is missing. */
IW_GLOBAL int iw_missed(struct iw_flow *f, iw_u32 direction, iw_u32 seq, iw_u64 now_ns)
{
	struct iw_request_head *head;
	struct iw_request *r;
	struct iw_parser *p;
	iw_u32 missing;
	int is_request;

	if (!f)
		return 0;
	p = iw_parser_of(f, direction);
	r = &f->record.request;
	is_request = direction == iw_request_direction(f);
	missing = seq - f->expected[direction & 1];
	f->expected[direction & 1] = seq;
	if (!missing || p->state == IW_P_DEAD || (p->state == IW_P_START && !f->live))
		return 0;
	if (is_request) {
		head = iw_open_head(f, p);
		if (head && p->state != IW_P_START)
			head->body_bytes += missing;
	} else {
		r->response_body_bytes += missing;
		r->activity_ns = now_ns;
		if (!r->response_ns) {
			r->response_ns = now_ns;
			r->response_handed_ns = now_ns;
			r->response_seq = seq;
		}
	}
	if ((p->state == IW_P_LENGTH || p->state == IW_P_CHUNK_DATA) && (is_request || p->format == IW_FORMAT_SKIP) &&
	    p->remain > missing) {
		p->remain -= missing;
		return 0;
	}
	iw_flag(&r->head, IW_REQ_APPROXIMATE);
	/* What follows most likely is the rest of a line that matters. */
	p->line_bytes = 0;
	p->line_kind = p->format == IW_FORMAT_SKIP ? IW_LINE_UNKNOWN : IW_LINE_DATA;
	p->event = 0;
	if (p->state == IW_P_LENGTH && p->remain > missing) {
		p->remain -= missing;
	} else if (p->state == IW_P_LENGTH && is_request) {
		iw_request_over(f, p, seq - (missing - (iw_u32)p->remain), now_ns);
	} else if (p->state == IW_P_LENGTH) {
		iw_response_over(f, seq - (missing - (iw_u32)p->remain), now_ns);
	} else if (p->state == IW_P_CHUNK_DATA && p->remain >= missing) {
		p->remain -= missing;
		if (!p->remain) {
			p->state = IW_P_CHUNK_SIZE;
			p->chunk_digits = 0;
		}
	} else if (is_request) {
		if (p->state != IW_P_START)
			iw_request_over(f, p, seq, now_ns);
	} else if (p->state != IW_P_CLOSE) {
		if (p->format == IW_FORMAT_SKIP)
			p->format = IW_FORMAT_SSE; /* if it is a stream, its lines say so */
		p->chunk_digits = 0;
		p->state = IW_P_SCAVENGE;
	}
	return 1;
}

#endif
