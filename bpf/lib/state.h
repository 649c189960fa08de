/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * The state of one followed connection: what the packet programs keep per socket, and the scratch window in which
 * payload is looked at. Structures only, valid C and C++. The code that works on them is parser.h (bytes to
 * messages and events) and flow.h (messages and events to a request with marks).
 */
#ifndef INFERWIRE_STATE_H
#define INFERWIRE_STATE_H

#include "inferwire/event_abi.h"

/* Direction as the socket sees it. */
#define IW_IN 0
#define IW_OUT 1

/* A window: IW_WIN_ROOM bytes kept free for bytes carried over, then payload. Positions are indices into buf.
 * IW_WIN_SIZE is a power of two so that one mask bounds every access. */
#define IW_WIN_ROOM 128u
#define IW_WIN_BYTES 1536u
#define IW_WIN_SIZE 2048u
#define IW_WIN_SLACK 64u

#define IW_CARRY 96u	 /* bytes of an unfinished line that are kept: key and value of one JSON member */
#define IW_LOOKAHEAD 72u /* bytes after a key that its value may need */

/* Where a copy of a segment is kept. */
struct iw_held_key {
	iw_u8 local[16];
	iw_u8 remote[16];
	iw_u32 netns;
	iw_u32 seq;
	iw_u16 local_port;
	iw_u16 remote_port;
	iw_u32 pad0;
};

struct iw_window {
	/* What the usual packet needs, side by side. */
	iw_u64 now_ns; /* when these bytes passed */
	iw_u32 busy;   /* slot is taken */
	iw_u32 seq;    /* sequence number of buf[IW_WIN_ROOM] */
	iw_u32 direction;
	iw_u32 pos; /* next byte to look at */
	iw_u32 end; /* after the last valid byte */
	/* What this packet brought. */
	iw_u32 chunks;
	iw_u32 last_content_seq;
	iw_u32 opaque;	 /* body bytes of an encoded stream passed */
	iw_u32 not_http; /* a message was due and something else came */
	/* The contiguous run of lines being scanned. */
	iw_u32 segment_open;
	iw_u32 segment_start;
	iw_u32 segment_end;
	iw_u32 scan;	     /* next block */
	iw_u32 line_start;   /* may lie in the room */
	iw_u32 last_newline; /* after the last line end of the segment, or segment_start */
	iw_u32 final;	     /* nothing of this body follows the segment */
	iw_u32 mask_base;
	iw_u32 pad1;
	iw_u64 mask_any;
	iw_u64 mask_newline;
	/* Whether the HTTP chunk being looked at may become the stream's template. */
	iw_u32 learn;	     /* its first byte is in this window */
	iw_u32 learn_events; /* of the request, before it */
	iw_u32 texts;	     /* keys with text found in it */
	iw_u32 other;	     /* something in it was taken over into the record */
	iw_u32 value_pos;    /* of the text */
	iw_u32 event;	     /* what it held */
	/* Where the packet program is in its packet, or in a range of held segments. */
	iw_u32 feed_offset;
	iw_u32 feed_left;
	iw_u32 feed_seq;
	iw_u32 feed_sum; /* checksum that the payload must complete; 0: do not check */
	iw_u32 feed_bad;
	iw_u32 feed_rcv_nxt;
	struct iw_held_key feed_key;
	iw_u32 feed_first; /* the range came by way of a listener: it keeps its arrival time */
	iw_u32 pad0;
	iw_u8 buf[IW_WIN_SIZE + IW_WIN_SLACK];
};

/* Parser states. */
#define IW_P_START 0  /* before a message */
#define IW_P_HEAD 1   /* start line and header lines */
#define IW_P_LENGTH 2 /* body with Content-Length */
#define IW_P_CHUNK_SIZE 3
#define IW_P_CHUNK_DATA 4
#define IW_P_TRAILER 5
#define IW_P_CLOSE 6	/* body until the connection closes */
#define IW_P_FLUSH 7	/* body is over, what was put off is looked at */
#define IW_P_SCAVENGE 8 /* bytes went missing inside framing: lines are read without it */
#define IW_P_DEAD 9	/* upgraded or tunnelled: bytes are only counted */

/* Kinds of line in an event stream. */
#define IW_LINE_UNKNOWN 0
#define IW_LINE_DATA 1
#define IW_LINE_COMMENT 2
#define IW_LINE_EVENT 3
#define IW_LINE_OTHER 4

/* What the last chunk of the stream that held one text and nothing else of interest looked like around that text. A
 * chunk that is equal but for the text (and for digits) needs no closer look. */
struct iw_pattern {
	iw_u64 shape; /* hash of the bytes from the HTTP chunk's first to the text, and from the text's closing quote to
			      * the HTTP chunk's line end */
	iw_u16 before_bytes; /* 0: none */
	iw_u16 after_bytes;
	iw_u16 event;
	iw_u8 plain; /* digits count as equal */
	iw_u8 pad0;
};
#define IW_PATTERN_MIN 8u
#define IW_PATTERN_MAX 512u /* of each part */

/* One cache line each. */
struct iw_parser {
	iw_u32 line_bytes; /* of the unfinished line */
	iw_u32 event;	   /* IW_EV_* of the unfinished event */
	iw_u8 state;
	iw_u8 head_flags;
	iw_u8 format; /* of the body */
	iw_u8 line_kind;
	iw_u8 line_done; /* an overlong header line was looked at already */
	iw_u8 chunk_digits;
	iw_u8 slot; /* request parser: 0 = current request, n = queue[n-1], 0xff = dropped */
	iw_u8 pad0;
	struct iw_pattern pattern;
	iw_u64 remain; /* bytes left of the body or the chunk; in a head: Content-Length */
	iw_u32 head_bytes;
	iw_u32 pad1[5];
};

/* Flags of a head. */
#define IW_HEAD_LENGTH 1u
#define IW_HEAD_CHUNKED 2u
#define IW_HEAD_FIRST_LINE 4u /* start line is still to come */
#define IW_HEAD_SKIP 8u	      /* interim response */

/* What an event holds. */
#define IW_EV_DATA (1u << 0)
#define IW_EV_CONTENT (1u << 1)
#define IW_EV_REASONING (1u << 2)
#define IW_EV_TOOL (1u << 3)
#define IW_EV_USAGE (1u << 4)
#define IW_EV_ERROR (1u << 5)
#define IW_EV_END (1u << 6)
#define IW_EV_PING (1u << 7)
#define IW_EV_COMMENT (1u << 8)
#define IW_EV_RESPONSES (1u << 9) /* type is response.*: only a delta is content */
#define IW_EV_DELTA (1u << 10)	  /* "delta":"text" */
#define IW_EV_RESPONSES_OUTPUT (1u << 11)
#define IW_EV_RESPONSES_REASON (1u << 12)
#define IW_EV_RESPONSES_TOOL (1u << 13)

#define IW_QUEUE 2
#define IW_UNACKED 64
#define IW_SENDS 8
#define IW_RANGES 16

/* Bytes after a hole, or whose checksum did not fit: a copy may lie in the map of held segments. */
struct iw_range {
	iw_u64 time_ns;
	iw_u32 start;
	iw_u32 end;
	iw_u32 flags;
	iw_u32 pad0;
};
#define IW_RANGE_COPY 1u    /* bytes were kept */
#define IW_RANGE_SUSPECT 2u /* to be believed only when the kernel has taken them */

/* What waits of a connection: made only when something has to, apart from the flow. */
struct iw_holes {
	struct iw_range ranges[IW_RANGES];
};

struct iw_send {
	iw_u64 time_ns;
	iw_u32 seq;
	iw_u32 pad0;
};

/* In the kernel's storage a value begins 8 bytes after a cache line does, with a pointer that every look-up reads: what
 * every packet needs shares its line. */
struct iw_flow {
	iw_u32 lock;   /* ingress */
	iw_u32 live;   /* record.request is a request that has begun and has not been emitted */
	iw_u32 finish; /* the current request is complete: emit it */
	iw_u32 ranges_used;
	iw_u32 expected[2];  /* next sequence number by direction */
	iw_u32 unacked_head; /* written by egress */
	iw_u32 unacked_tail; /* written by ingress */
	iw_u32 sends_head;
	iw_u32 alone_us;    /* low bits of when the oldest content in flight left, if it left alone; else 0 */
	iw_u8 synced[2];    /* expected is valid */
	iw_u8 gap_guess[2]; /* edges below the latest gaps: sent (client: delivered), delivered */
	iw_u8 role;	    /* as in record.conn */
	iw_u8 first_sent;   /* the current request's first chunk was reported */
	iw_u8 fin_in;	    /* the peer's FIN came in: it takes one sequence number */
	iw_u8 zero;	    /* bit by direction: the last packet's window was 0 */
	iw_u32 rtt_next_us; /* low bits of when the request's next round trip may be sampled */
	iw_u32 path_next;   /* jiffies: as the socket's rtt_next */
	iw_u32 srtt_us;	    /* last seen, to notice new samples */
	iw_u32 netns;
	struct iw_record record;    /* what leaves, in place; its end is hot */
	struct iw_parser parser[2]; /* by direction */
	iw_u32 unacked[IW_UNACKED]; /* sequence numbers after content in flight */
	struct iw_send sends[IW_SENDS];
	iw_u64 previous_end_ns;
	iw_u32 zero_us[2];  /* low bits of since when */
	iw_u64 idle_fin_ns; /* the server's FIN came while nothing was asked */
	iw_u32 queued;
	iw_u32 dropped; /* pipelined requests beyond the queue whose responses are still to come */
	struct iw_request_head queue[IW_QUEUE];
	iw_u8 carry[2][IW_CARRY]; /* by direction: last bytes of the unfinished line, right aligned */
};

#endif
