/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * From bytes to HTTP/1.1 messages and to events of a stream (SSE, NDJSON), incrementally: input may be cut at any
 * byte. Pure C: the same code runs in the packet programs, in unit tests, in fuzzers and in replay.
 *
 *   START --byte--> HEAD --blank line--> LENGTH | CHUNK_SIZE | CLOSE | (no body) START
 *   CHUNK_SIZE --n>0--> CHUNK_DATA --n bytes--> CHUNK_SIZE --0--> TRAILER --blank line--> FLUSH --> START
 *   LENGTH --all--> FLUSH --> START;  CLOSE ends with the connection;  101 or CONNECT --> DEAD
 *   bytes missing inside framing --> SCAVENGE (lines without framing) --"0", blank line--> START
 *
 * Work is done on a window (state.h). Within it, a *segment* is a run of bytes that belong together (head, chunk
 * data, body); lines live in segments and may go on in the next one: the last IW_CARRY bytes of an unfinished line are
 * kept and put in front of the next segment. Line ends and JSON keys are found eight bytes at a time; only there does
 * the code look closely. A JSON key cannot be faked inside a string, since quotes are escaped there: the text `"key":`
 * only ever is a key.
 */
#ifndef INFERWIRE_PARSER_H
#define INFERWIRE_PARSER_H

#include "flow.h"

#define IW_HEAD_MAX 65536u

/* Results of iw_step. */
#define IW_STEP_MORE 0 /* call again */
#define IW_STEP_DONE 1 /* window used up */
#define IW_STEP_EMIT 2 /* the current request has to be emitted, then call again */

IW_INLINE iw_u32 iw_is_digit(iw_u8 c) { return c >= '0' && c <= '9'; }

/* A number at pos. With scale 1 the integer part; with scale 1000000 milliseconds (with fraction) as nanoseconds.
 * ~0 if there is none. */
IW_GLOBAL iw_u64 iw_number(struct iw_window *w, iw_u32 pos, iw_u32 scale)
{
	iw_u64 value = 0, unit = scale;
	iw_u32 i, digits = 0, fraction = 0;

	if (!w)
		return ~0ull;
	w->other = 1;
	for (i = 0; i < 24; i++) {
		iw_u8 c = IW_AT(w, pos + i);

		if (pos + i >= w->segment_end)
			break;
		if (c == ' ' && !digits)
			continue;
		if (c == '.' && digits && !fraction) {
			fraction = 1;
			value *= scale;
			continue;
		}
		if (!iw_is_digit(c))
			break;
		digits++;
		if (digits > 18)
			return ~0ull;
		if (!fraction) {
			value = value * 10 + (c - '0');
		} else {
			unit /= 10;
			value += (iw_u64)(c - '0') * unit;
		}
	}
	if (!digits)
		return ~0ull;
	return fraction ? value : value * scale;
}

#define IW_TEXT_MODEL 0
#define IW_TEXT_RESPONSE_ID 1
#define IW_TEXT_FINISH 2

/* Copies a JSON string's safe characters from pos (after its quote). Others become '_'. */
IW_GLOBAL int iw_text(struct iw_flow *f, struct iw_window *w, iw_u32 pos_and_which)
{
	iw_u32 which = pos_and_which >> 16, pos = pos_and_which & 0xffff, i;
	iw_u32 limit = which == IW_TEXT_FINISH ? 15 : IW_TEXT_MAX - 1;

	if (!f || !w)
		return 0;
	w->other = 1;
	for (i = 0; i < IW_TEXT_MAX - 1; i++) {
		iw_u8 c = IW_AT(w, pos + i);

		if (i >= limit || c == '"' || c == '\n' || pos + i >= w->segment_end)
			break;
		if (c < 0x21 || c > 0x7e || c == '\\' || c == '<' || c == '>')
			c = '_';
		if (which == IW_TEXT_MODEL)
			f->record.request.model[i] = (char)c;
		else if (which == IW_TEXT_RESPONSE_ID)
			f->record.request.response_id[i] = (char)c;
		else
			f->record.request.finish_reason[i & 15] = (char)c;
	}
	if (which == IW_TEXT_FINISH)
		f->record.request.finish_reason[i & 15] = 0; /* a longer one may have been there */
	return 0;
}

/* "type":"..." with the value's first character at v. */
IW_INLINE iw_u32 iw_type_value(struct iw_window *w, iw_u32 v)
{
	iw_u64 t = IW_LOAD(w, v);
	iw_u64 s;

	if (t == IW_WORD('m', 'e', 's', 's', 'a', 'g', 'e', '_'))
		return (IW_LOAD(w, v + 8) & IW_FIRST(5)) == IW_WORD('s', 't', 'o', 'p', '"', 0, 0, 0) ? IW_EV_END : 0;
	if ((t & IW_FIRST(5)) == IW_WORD('p', 'i', 'n', 'g', '"', 0, 0, 0))
		return IW_EV_PING;
	if ((t & IW_FIRST(6)) == IW_WORD('e', 'r', 'r', 'o', 'r', '"', 0, 0))
		return IW_EV_ERROR;
	if (t != IW_WORD('r', 'e', 's', 'p', 'o', 'n', 's', 'e') || IW_AT(w, v + 8) != '.')
		return 0;
	s = IW_LOAD(w, v + 9);
	if (s == IW_WORD('c', 'o', 'm', 'p', 'l', 'e', 't', 'e') ||
	    s == IW_WORD('i', 'n', 'c', 'o', 'm', 'p', 'l', 'e'))
		return IW_EV_RESPONSES | IW_EV_END;
	if ((s & IW_FIRST(6)) == IW_WORD('f', 'a', 'i', 'l', 'e', 'd', 0, 0))
		return IW_EV_RESPONSES | IW_EV_END | IW_EV_ERROR;
	if (s == IW_WORD('r', 'e', 'a', 's', 'o', 'n', 'i', 'n'))
		return IW_EV_RESPONSES | IW_EV_RESPONSES_REASON;
	if (s == IW_WORD('f', 'u', 'n', 'c', 't', 'i', 'o', 'n'))
		return IW_EV_RESPONSES | IW_EV_RESPONSES_TOOL;
	return IW_EV_RESPONSES | IW_EV_RESPONSES_OUTPUT;
}

/* The kind of a line from its first bytes at pos, as far as they are there. */
IW_INLINE iw_u8 iw_line_kind(struct iw_window *w, iw_u32 pos, iw_u32 bytes, iw_u8 format)
{
	iw_u64 head = IW_LOAD(w, pos);

	if (format != IW_FORMAT_SSE)
		return IW_LINE_DATA;
	if (bytes >= 5 && (head & IW_FIRST(5)) == IW_WORD('d', 'a', 't', 'a', ':', 0, 0, 0))
		return IW_LINE_DATA;
	if (bytes >= 1 && (head & 0xff) == ':')
		return IW_LINE_COMMENT;
	if (bytes >= 6 && (head & IW_FIRST(6)) == IW_WORD('e', 'v', 'e', 'n', 't', ':', 0, 0))
		return IW_LINE_EVENT;
	if (bytes >= 6)
		return IW_LINE_OTHER;
	return IW_LINE_UNKNOWN;
}

/* A JSON key whose colon is at c. */
IW_GLOBAL int iw_key(struct iw_flow *f, struct iw_window *w, iw_u32 c)
{
	struct iw_request *r;
	struct iw_parser *p;
	iw_u64 k, n;
	iw_u32 v, event = 0;
	iw_u8 ch, next;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	r = &f->record.request;
	if (c < IW_WIN_ROOM - IW_LOOKAHEAD)
		return 0;
	if (p->line_kind == IW_LINE_UNKNOWN && w->line_start <= c)
		p->line_kind = iw_line_kind(w, w->line_start, c - w->line_start, p->format);
	if (p->line_kind != IW_LINE_DATA)
		return 0;
	k = IW_LOAD(w, c - 9);
	v = c + 1;
	ch = IW_AT(w, v);
	if (ch == ' ') {
		v++;
		ch = IW_AT(w, v);
	}
	next = IW_AT(w, v + 1);
#define IW_HAS_TEXT (ch == '"' && next != '"')
/* The key has `n` characters with its first quote and begins with `first`, in this line. */
#define IW_BEGINS(n, first) (c - w->line_start >= (n) && IW_AT(w, c - (n)) == '"' && IW_AT(w, c - (n) + 1) == (first))
	switch ((iw_u8)(k >> 56)) {
	case 't':
		if (k == IW_WORD('"', 'c', 'o', 'n', 't', 'e', 'n', 't') ||
		    (k & IW_LAST(5)) == IW_WORD(0, 0, 0, '"', 't', 'e', 'x', 't')) {
			if (IW_HAS_TEXT)
				event = IW_EV_CONTENT;
		} else if (k == IW_WORD('_', 'c', 'o', 'n', 't', 'e', 'n', 't')) {
			if (IW_HAS_TEXT && IW_LOAD(w, c - 17) == IW_WORD('e', 'a', 's', 'o', 'n', 'i', 'n', 'g'))
				event = IW_EV_REASONING;
		} else if (k == IW_WORD('t', 'e', 'd', '_', 't', 'e', 'x', 't')) {
			if (ch == '"')
				event = IW_EV_END;
		} else if (k == IW_WORD('t', '_', 'o', 'u', 't', 'p', 'u', 't')) {
			if (IW_HAS_TEXT && IW_BEGINS(13, 't'))
				event = IW_EV_CONTENT; /* Triton: text_output */
		} else if ((k & IW_LAST(7)) == IW_WORD(0, '"', 'o', 'b', 'j', 'e', 'c', 't')) {
			if (ch == '"' &&
			    (IW_LOAD(w, v + 1) & IW_FIRST(6)) == IW_WORD('e', 'r', 'r', 'o', 'r', '"', 0, 0))
				event = IW_EV_ERROR;
		} else if (k == IW_WORD('a', 'l', '_', 'c', 'o', 'u', 'n', 't')) {
			n = iw_number(w, v, 1);
			if (n < ~0u) {
				if (IW_BEGINS(12, 'e'))
					r->tokens_output = (iw_u32)n;
				else if (IW_BEGINS(19, 'p'))
					r->tokens_input = (iw_u32)n;
			}
		}
		break;
	case 'g':
		if (k == IW_WORD('t', 'h', 'i', 'n', 'k', 'i', 'n', 'g') && IW_BEGINS(10, 't') && IW_HAS_TEXT)
			event = IW_EV_REASONING;
		else if (k == IW_WORD('e', 'a', 's', 'o', 'n', 'i', 'n', 'g') && IW_BEGINS(11, 'r') && IW_HAS_TEXT)
			event = IW_EV_REASONING;
		break;
	case 'e':
		if (k == IW_WORD('r', 'e', 's', 'p', 'o', 'n', 's', 'e')) {
			if (IW_BEGINS(10, 'r') && IW_HAS_TEXT)
				event = IW_EV_CONTENT;
		} else if ((k & IW_LAST(5)) == IW_WORD(0, 0, 0, '"', 't', 'y', 'p', 'e')) {
			if (ch == '"')
				event = iw_type_value(w, v + 1);
		} else if ((k & IW_LAST(5)) == IW_WORD(0, 0, 0, '"', 'd', 'o', 'n', 'e')) {
			if (ch == 't')
				event = IW_EV_END;
		} else if ((k & IW_LAST(6)) == IW_WORD(0, 0, '"', 'u', 's', 'a', 'g', 'e')) {
			if (ch == '{')
				event = IW_EV_USAGE;
		} else if (k == IW_WORD('d', 'e', 'l', '_', 'n', 'a', 'm', 'e')) {
			if (ch == '"' && IW_BEGINS(12, 'm') && !r->model[0])
				iw_text(f, w, IW_TEXT_MODEL << 16 | ((v + 1) & 0xffff));
		}
		break;
	case 'h':
		if (k == IW_WORD('t', '_', 'l', 'e', 'n', 'g', 't', 'h')) {
			n = iw_number(w, v, 1); /* TGI: input_length */
			if (n < ~0u && IW_BEGINS(14, 'i'))
				r->tokens_input = (iw_u32)n;
		}
		break;
	case 'l':
		if ((k & IW_LAST(6)) == IW_WORD(0, 0, '"', 'm', 'o', 'd', 'e', 'l') && ch == '"' && !r->model[0])
			iw_text(f, w, IW_TEXT_MODEL << 16 | ((v + 1) & 0xffff));
		else if (k == IW_WORD('i', 'o', 'n', '_', 'c', 'a', 'l', 'l') && ch == '{')
			event = IW_EV_TOOL; /* function_call, the older form of tool_calls */
		break;
	case 'd':
		if ((k & IW_LAST(3)) == IW_WORD(0, 0, 0, 0, 0, '"', 'i', 'd') && ch == '"' && !r->response_id[0])
			iw_text(f, w, IW_TEXT_RESPONSE_ID << 16 | ((v + 1) & 0xffff));
		break;
	case 's':
		if (k == IW_WORD('o', 'l', '_', 'c', 'a', 'l', 'l', 's')) {
			if (ch == '[' && next != ']')
				event = IW_EV_TOOL;
		} else if (k == IW_WORD('t', '_', 't', 'o', 'k', 'e', 'n', 's')) {
			n = iw_number(w, v, 1);
			if (n < ~0u) {
				if (IW_BEGINS(15, 'p') || IW_BEGINS(14, 'i'))
					r->tokens_input = (iw_u32)n;
				else if (IW_BEGINS(15, 'o'))
					r->tokens_output = (iw_u32)n;
			}
		} else if (k == IW_WORD('d', '_', 't', 'o', 'k', 'e', 'n', 's')) {
			n = iw_number(w, v, 1); /* TGI: generated_tokens */
			if (n < ~0u && IW_BEGINS(18, 'g'))
				r->tokens_output = (iw_u32)n;
		} else if (k == IW_WORD('n', '_', 't', 'o', 'k', 'e', 'n', 's')) {
			n = iw_number(w, v, 1);
			if (n < ~0u && IW_BEGINS(19, 'c'))
				r->tokens_output = (iw_u32)n;
		} else if (k == IW_WORD('r', 'o', 'm', 'p', 't', '_', 'm', 's')) {
			n = iw_number(w, v, 1000000);
			if (IW_BEGINS(11, 'p'))
				r->prefill_ns = n;
		} else if (k == IW_WORD('_', 't', 'i', 'm', 'e', '_', 'm', 's')) {
			n = iw_number(w, v, 1000000);
			if (IW_BEGINS(15, 'q'))
				r->queue_ns = n;
		} else if (k == IW_WORD('t', 'o', 'k', 'e', 'n', '_', 'm', 's')) {
			n = iw_number(w, v, 1000000);
			if (IW_BEGINS(24, 't'))
				r->prefill_ns = n;
		}
		break;
	case 'n':
		if (k == IW_WORD('h', '_', 'r', 'e', 'a', 's', 'o', 'n') ||
		    k == IW_WORD('e', '_', 'r', 'e', 'a', 's', 'o', 'n') ||
		    k == IW_WORD('p', '_', 'r', 'e', 'a', 's', 'o', 'n')) {
			/* Beside a finish_reason, stop_reason says which stop string it was. */
			if (IW_HAS_TEXT && !((iw_u8)k == 'p' && r->finish_reason[0]))
				iw_text(f, w, IW_TEXT_FINISH << 16 | ((v + 1) & 0xffff));
		} else if (k == IW_WORD('i', 'a', 'l', '_', 'j', 's', 'o', 'n')) {
			if (IW_HAS_TEXT)
				event = IW_EV_TOOL;
		} else if (k == IW_WORD('p', 'r', 'o', 'm', 'p', 't', '_', 'n')) {
			n = iw_number(w, v, 1);
			if (n < ~0u && IW_BEGINS(10, 'p') && r->tokens_input == ~0u)
				r->tokens_input = (iw_u32)n;
		} else if (k == IW_WORD('d', 'i', 'c', 't', 'e', 'd', '_', 'n')) {
			n = iw_number(w, v, 1);
			if (n < ~0u && IW_BEGINS(13, 'p') && r->tokens_output == ~0u)
				r->tokens_output = (iw_u32)n;
		} else if (k == IW_WORD('d', 'u', 'r', 'a', 't', 'i', 'o', 'n')) {
			n = iw_number(w, v, 1);
			if (IW_BEGINS(22, 'p'))
				r->prefill_ns = n;
			else if (IW_BEGINS(15, 'l'))
				r->load_ns = n;
		}
		break;
	case 'r':
		if ((k & IW_LAST(6)) == IW_WORD(0, 0, '"', 'e', 'r', 'r', 'o', 'r') && (ch == '{' || IW_HAS_TEXT))
			event = IW_EV_ERROR;
		break;
	case 'a':
		if ((k & IW_LAST(6)) == IW_WORD(0, 0, '"', 'd', 'e', 'l', 't', 'a') && IW_HAS_TEXT)
			event = IW_EV_DELTA;
		break;
	case 'p':
		if ((k & IW_LAST(5)) == IW_WORD(0, 0, 0, '"', 's', 't', 'o', 'p') && ch == 't')
			event = IW_EV_END;
		break;
	}
#undef IW_HAS_TEXT
#undef IW_BEGINS
	p->event |= event;
	if (ch == '"' && event & (IW_EV_CONTENT | IW_EV_REASONING | IW_EV_TOOL | IW_EV_DELTA)) {
		w->texts++;
		w->value_pos = v + 1;
	}
	return 0;
}

/* ---- Heads ---- */

IW_INLINE int iw_path_ends(struct iw_window *w, iw_u32 pos, iw_u32 end)
{
	iw_u8 c = IW_AT(w, pos);

	return pos >= end || c <= ' ' || c == '?' || c == '#';
}

/* FNV-1a of a path up to '?', '#' or blank, at most 64 bytes: routes are compared by it. Returns 0 if it is longer. */
IW_INLINE iw_u64 iw_path_hash(struct iw_window *w, iw_u32 pos, iw_u32 end)
{
	iw_u64 h = 0xcbf29ce484222325ull;
	iw_u32 i, ended = 0;

	for (i = 0; i < 65; i++) {
		if (iw_path_ends(w, pos + i, end)) {
			ended = 1;
			break;
		}
		h ^= IW_AT(w, pos + i);
		h *= 0x100000001b3ull;
	}
	return ended ? h : 0;
}

/* Known routes by hash, set by the agent (kernel: read-only data) or by the test. */
#ifdef __bpf__
extern const volatile struct iw_routes routes;
#else
static struct iw_routes routes;
#endif

IW_GLOBAL int iw_route(struct iw_window *w, iw_u32 pos, iw_u32 end)
{
	iw_u64 h;
	iw_u32 i;

	if (!w)
		return 0;
	h = iw_path_hash(w, pos, end);
	if (!h)
		return IW_ROUTE_OTHER;
	for (i = 1; i < IW_ROUTE_MAX; i++)
		if (routes.hash[i] == h)
			return (int)i;
	/* Triton: /v2/models/NAME[/versions/N]/generate[_stream] */
	if (IW_LOAD(w, pos) == IW_WORD('/', 'v', '2', '/', 'm', 'o', 'd', 'e') &&
	    (IW_LOAD(w, pos + 8) & IW_FIRST(3)) == IW_WORD('l', 's', '/', 0, 0, 0, 0, 0)) {
		for (i = 11; i < 72; i++) {
			iw_u32 at = pos + i, stream;

			if (iw_path_ends(w, at, end))
				break;
			if (IW_LOAD(w, at) != IW_WORD('/', 'g', 'e', 'n', 'e', 'r', 'a', 't') ||
			    IW_AT(w, at + 8) != 'e')
				continue;
			stream = (IW_LOAD(w, at + 9) & IW_FIRST(7)) == IW_WORD('_', 's', 't', 'r', 'e', 'a', 'm', 0)
					 ? 7
					 : 0;
			if (iw_path_ends(w, at + 9 + stream, end))
				return stream ? IW_ROUTE_TRITON_STREAM : IW_ROUTE_TRITON;
		}
	}
	return IW_ROUTE_OTHER;
}

/* The request method at pos, IW_METHOD_NONE if these bytes begin no request. */
IW_INLINE iw_u8 iw_method(iw_u64 x)
{
	if ((x & IW_FIRST(5)) == IW_WORD('P', 'O', 'S', 'T', ' ', 0, 0, 0))
		return IW_METHOD_POST;
	if ((x & IW_FIRST(4)) == IW_WORD('G', 'E', 'T', ' ', 0, 0, 0, 0))
		return IW_METHOD_GET;
	if ((x & IW_FIRST(5)) == IW_WORD('H', 'E', 'A', 'D', ' ', 0, 0, 0))
		return IW_METHOD_HEAD;
	if ((x & IW_FIRST(4)) == IW_WORD('P', 'U', 'T', ' ', 0, 0, 0, 0))
		return IW_METHOD_PUT;
	if ((x & IW_FIRST(7)) == IW_WORD('D', 'E', 'L', 'E', 'T', 'E', ' ', 0))
		return IW_METHOD_DELETE;
	if (x == IW_WORD('O', 'P', 'T', 'I', 'O', 'N', 'S', ' '))
		return IW_METHOD_OPTIONS;
	if ((x & IW_FIRST(6)) == IW_WORD('P', 'A', 'T', 'C', 'H', ' ', 0, 0))
		return IW_METHOD_PATCH;
	if (x == IW_WORD('C', 'O', 'N', 'N', 'E', 'C', 'T', ' '))
		return IW_METHOD_CONNECT;
	return IW_METHOD_NONE;
}

/* Length of the method's name. */
IW_INLINE iw_u32 iw_method_bytes(iw_u8 method)
{
	return method == IW_METHOD_GET || method == IW_METHOD_PUT     ? 3
	       : method == IW_METHOD_POST || method == IW_METHOD_HEAD ? 4
	       : method == IW_METHOD_PATCH			      ? 5
	       : method == IW_METHOD_DELETE			      ? 6
								      : 7;
}

/* The status of "HTTP/1.x NNN" in 16 bytes, 0 if it is none. */
IW_INLINE iw_u32 iw_status(iw_u64 first, iw_u64 second)
{
	iw_u8 a = (iw_u8)(second >> 8), b = (iw_u8)(second >> 16), c = (iw_u8)(second >> 24);

	if ((first & IW_FIRST(7)) != IW_WORD('H', 'T', 'T', 'P', '/', '1', '.', 0) || (second & 0xff) != ' ' ||
	    !iw_is_digit(a) || a == '0' || !iw_is_digit(b) || !iw_is_digit(c))
		return 0;
	return (iw_u32)(a - '0') * 100 + (iw_u32)(b - '0') * 10 + (c - '0');
}

IW_INLINE iw_u32 iw_skip_blank(struct iw_window *w, iw_u32 pos)
{
	if (IW_AT(w, pos) == ' ')
		pos++;
	if (IW_AT(w, pos) == ' ')
		pos++;
	return pos;
}

/* One header line of a request or response at [pos, end), names in any case. */
IW_GLOBAL int iw_header_line(struct iw_flow *f, struct iw_window *w, iw_u32 pos, iw_u32 end)
{
	struct iw_request *r;
	struct iw_request_head *head;
	struct iw_parser *p;
	iw_u64 k1, k2, n;
	iw_u32 v, i;
	int is_request;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	r = &f->record.request;
	is_request = w->direction == iw_request_direction(f);
	k1 = IW_LOAD(w, pos) | IW_LOWER;
	k2 = IW_LOAD(w, pos + 8) | IW_LOWER;
	if (k1 == IW_WORD('c', 'o', 'n', 't', 'e', 'n', 't', '-')) {
		if ((k2 & IW_FIRST(7)) == IW_WORD('l', 'e', 'n', 'g', 't', 'h', ':', 0)) {
			v = iw_skip_blank(w, pos + 15);
			n = iw_number(w, v, 1);
			if (n == ~0ull && iw_is_digit(IW_AT(w, v)))
				n = 1ull << 62; /* a length that no body can have: it will end too early */
			if (n != ~0ull) {
				p->remain = n;
				p->head_flags |= IW_HEAD_LENGTH;
			}
		} else if (!is_request && (k2 & IW_FIRST(5)) == IW_WORD('t', 'y', 'p', 'e', ':', 0, 0, 0)) {
			v = iw_skip_blank(w, pos + 13);
			k1 = IW_LOAD(w, v) | IW_LOWER;
			k2 = IW_LOAD(w, v + 8) | IW_LOWER;
			if (k1 == IW_WORD('t', 'e', 'x', 't', '/', 'e', 'v', 'e') &&
			    (k2 & IW_FIRST(7)) == IW_WORD('n', 't', '-', 's', 't', 'r', 'e', 0))
				p->format = IW_FORMAT_SSE;
			else if (k1 == IW_WORD('a', 'p', 'p', 'l', 'i', 'c', 'a', 't')) {
				if (k2 == IW_WORD('i', 'o', 'n', '/', 'x', '-', 'n', 'd') ||
				    k2 == IW_WORD('i', 'o', 'n', '/', 'n', 'd', 'j', 's') ||
				    k2 == IW_WORD('i', 'o', 'n', '/', 's', 't', 'r', 'e') ||
				    (k2 == IW_WORD('i', 'o', 'n', '/', 'j', 's', 'o', 'n') &&
				     (IW_AT(w, v + 16) | 0x20) == 'l'))
					p->format = IW_FORMAT_NDJSON;
				else if (k2 == IW_WORD('i', 'o', 'n', '/', 'j', 's', 'o', 'n'))
					p->format = IW_FORMAT_JSON;
			}
		} else if (!is_request && k2 == IW_WORD('e', 'n', 'c', 'o', 'd', 'i', 'n', 'g')) {
			v = iw_skip_blank(w, pos + 17);
			n = IW_LOAD(w, v) | IW_LOWER;
			r->encoding =
				(n & IW_FIRST(4)) == IW_WORD('g', 'z', 'i', 'p', 0, 0, 0, 0)   ? IW_ENCODING_GZIP
				: (n & IW_FIRST(2)) == IW_WORD('b', 'r', 0, 0, 0, 0, 0, 0)     ? IW_ENCODING_BR
				: (n & IW_FIRST(4)) == IW_WORD('z', 's', 't', 'd', 0, 0, 0, 0) ? IW_ENCODING_ZSTD
				: (n & IW_FIRST(4)) == IW_WORD('d', 'e', 'f', 'l', 0, 0, 0, 0) ? IW_ENCODING_DEFLATE
				: (n & IW_FIRST(4)) == IW_WORD('i', 'd', 'e', 'n', 0, 0, 0, 0) ? IW_ENCODING_IDENTITY
											       : IW_ENCODING_OTHER;
		}
	} else if (k1 == IW_WORD('t', 'r', 'a', 'n', 's', 'f', 'e', 'r')) {
		if (k2 == IW_WORD('-', 'e', 'n', 'c', 'o', 'd', 'i', 'n')) {
			/* "chunked" is the last coding; with others before it the body is still framed by chunks. */
			for (i = 17; i < 17 + 40; i++) {
				if (pos + i >= end)
					break;
				if ((IW_LOAD(w, pos + i) & IW_FIRST(7) & ~IW_LOWER) ==
				    (IW_WORD('c', 'h', 'u', 'n', 'k', 'e', 'd', 0) & ~IW_LOWER)) {
					p->head_flags |= IW_HEAD_CHUNKED;
					break;
				}
			}
		}
	} else if (is_request && k1 == IW_WORD('t', 'r', 'a', 'c', 'e', 'p', 'a', 'r')) {
		if ((k2 & IW_FIRST(4)) == IW_WORD('e', 'n', 't', ':', 0, 0, 0, 0)) {
			v = iw_skip_blank(w, pos + 12);
			head = iw_open_head(f, p);
			if (head && IW_AT(w, v + 2) == '-' && IW_AT(w, v + 35) == '-' && v + 35 < end) {
				for (i = 0; i < 32; i++)
					head->trace_id[i] = (char)IW_AT(w, v + 3 + i);
				head->has_trace = 1;
			}
		}
	} else if (is_request && (k1 & IW_FIRST(7)) == IW_WORD('e', 'x', 'p', 'e', 'c', 't', ':', 0)) {
		head = iw_open_head(f, p);
		if (head)
			iw_flag(head, IW_REQ_EXPECT_CONTINUE);
	}
	return 0;
}

/* The start line of a message at [pos, end). Returns 0 if it is one. */
IW_INLINE int iw_start_line(struct iw_flow *f, struct iw_window *w, struct iw_parser *p, iw_u32 pos, iw_u32 end)
{
	struct iw_request *r = &f->record.request;
	iw_u64 first = IW_LOAD(w, pos);
	iw_u32 status;

	if (w->direction == iw_request_direction(f)) {
		struct iw_request_head *head = iw_open_head(f, p);
		iw_u8 method = iw_method(first);

		if (!method)
			return -1;
		if (head) {
			head->method = method;
			head->route = (iw_u8)iw_route(w, pos + iw_method_bytes(method) + 1, end);
		}
		return 0;
	}
	status = iw_status(first, IW_LOAD(w, pos + 8));
	if (!status)
		return -1;
	if (status >= 100 && status < 200 && status != 101) {
		p->head_flags |= IW_HEAD_SKIP;
		return 0;
	}
	r->code = (iw_u16)status;
	r->encoding = IW_ENCODING_IDENTITY;
	return 0;
}

/* What looked like a message was none. */
IW_INLINE void iw_bad_start(struct iw_flow *f, struct iw_window *w, struct iw_parser *p)
{
	w->not_http = 1;
	if (w->direction != iw_request_direction(f)) {
		iw_flag(&f->record.request.head, IW_REQ_APPROXIMATE);
		return;
	}
	f->record.conn.requests--;
	if (p->slot == 0)
		iw_set_live(f, 0);
	else if (p->slot <= IW_QUEUE && f->queued)
		f->queued--;
	else if (f->dropped)
		f->dropped--;
	p->slot = 0xff;
}

/* A blank line: the head is complete. Chooses the framing of what follows. */
IW_GLOBAL int iw_head_done(struct iw_flow *f, struct iw_window *w)
{
	struct iw_request *r;
	struct iw_parser *p;
	iw_u8 flags;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	r = &f->record.request;
	flags = p->head_flags;
	p->line_bytes = 0;
	p->line_kind = IW_LINE_UNKNOWN;
	p->event = 0;
	p->chunk_digits = 0;
	if (w->direction == iw_request_direction(f)) {
		p->format = IW_FORMAT_SKIP;
		if (flags & IW_HEAD_CHUNKED) {
			p->remain = 0;
			p->state = IW_P_CHUNK_SIZE;
		} else if (flags & IW_HEAD_LENGTH && p->remain) {
			p->state = IW_P_LENGTH;
		} else {
			iw_request_end(f, w, p);
		}
		return 0;
	}
	if (flags & IW_HEAD_SKIP) {
		/* A 1xx is not the response: its marks go. */
		r->response_ns = 0;
		r->response_handed_ns = 0;
		r->response_delivered_ns = 0;
		r->response_seq = 0;
		p->state = IW_P_START;
		return 0;
	}
	r->format = p->format;
	if (r->code == 101 || (r->head.method == IW_METHOD_CONNECT && r->code < 300)) {
		iw_flag(&r->head, IW_REQ_UPGRADED);
		p->state = IW_P_DEAD;
		p->format = IW_FORMAT_SKIP;
		iw_parser_of(f, iw_request_direction(f))->state = IW_P_DEAD;
		return 0;
	}
	if (!(r->head.flags & IW_REQ_REQUEST_DONE))
		iw_flag(&r->head, IW_REQ_EARLY_RESPONSE);
	if (p->format == IW_FORMAT_SSE || p->format == IW_FORMAT_NDJSON) {
		r->stream = 1;
		if (r->head.route == 7 || r->head.route == IW_ROUTE_TRITON_STREAM ||
		    r->head.route >= IW_ROUTE_CONFIGURED || r->head.route == IW_ROUTE_OTHER)
			iw_flag(&r->head, IW_REQ_NO_MARKER_ROUTE);
	}
	if (r->encoding != IW_ENCODING_IDENTITY || (p->format == IW_FORMAT_JSON && r->head.route == IW_ROUTE_OTHER))
		p->format = IW_FORMAT_SKIP;
	if (r->head.method == IW_METHOD_HEAD || r->code == 204 || r->code == 304) {
		iw_response_end(f, w);
	} else if (flags & IW_HEAD_CHUNKED) {
		p->remain = 0;
		p->state = IW_P_CHUNK_SIZE;
	} else if (flags & IW_HEAD_LENGTH) {
		p->state = IW_P_LENGTH;
		if (!p->remain)
			iw_response_end(f, w);
	} else {
		p->remain = ~0ull;
		p->state = IW_P_CLOSE;
	}
	return 0;
}

/* A line of a head or trailer ends at the newline at q. Returns 1 if the segment ends with it. */
IW_GLOBAL int iw_head_line(struct iw_flow *f, struct iw_window *w, iw_u32 q)
{
	struct iw_parser *p;
	iw_u32 start, end;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	start = w->line_start;
	end = q;
	if (end > start && IW_AT(w, end - 1) == '\r')
		end--;
	w->line_start = q + 1;
	if (p->line_done) {
		p->line_done = 0;
		return 0;
	}
	if (end == start) {
		w->pos = q + 1;
		if (p->state == IW_P_TRAILER) {
			p->state = IW_P_FLUSH;
			return 1;
		}
		if (p->head_flags & IW_HEAD_FIRST_LINE) {
			return 0; /* blank lines before a start line are allowed (RFC 9112, 2.2) */
		}
		iw_head_done(f, w);
		return 1;
	}
	if (p->state == IW_P_TRAILER)
		return 0;
	if (p->head_flags & IW_HEAD_FIRST_LINE) {
		p->head_flags &= ~IW_HEAD_FIRST_LINE;
		if (iw_start_line(f, w, p, start, end) < 0) {
			iw_bad_start(f, w, p);
			w->pos = q + 1;
			p->state = IW_P_START;
			p->line_bytes = 0;
			return 1;
		}
		return 0;
	}
	iw_header_line(f, w, start, end);
	return 0;
}

/* Outside framing, a line may show that the message is over: the last chunk's "0" and a blank line, or the next
 * message's status line. Returns 1 if so. */
IW_INLINE int iw_scavenge_line(struct iw_window *w, struct iw_parser *p, iw_u32 start, iw_u32 end, iw_u32 q)
{
	if (end == start) {
		if (!p->chunk_digits)
			return 0;
		w->pos = q + 1;
	} else {
		p->chunk_digits = end - start == 1 && IW_AT(w, start) == '0';
		if (end - start < 12 || q - start >= IW_CARRY || !iw_status(IW_LOAD(w, start), IW_LOAD(w, start + 8)))
			return 0;
		w->pos = start; /* carried bytes lie in front of the segment */
	}
	p->state = IW_P_FLUSH;
	return 1;
}

/* A line of a body ends at the newline at q. Returns 1 if the message ends with it (scavenging only). */
IW_GLOBAL int iw_body_line(struct iw_flow *f, struct iw_window *w, iw_u32 q)
{
	struct iw_parser *p;
	iw_u32 start, end;
	iw_u64 head;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	if (p->format == IW_FORMAT_JSON && p->state != IW_P_SCAVENGE)
		return 0;
	start = w->line_start;
	end = q;
	if (end > start && IW_AT(w, end - 1) == '\r')
		end--;
	w->line_start = q + 1;
	if (p->state == IW_P_SCAVENGE && iw_scavenge_line(w, p, start, end, q)) {
		f->record.request.response_body_bytes -= w->segment_end - w->pos;
		return 1;
	}
	if (p->format == IW_FORMAT_JSON)
		return 0;
	if (p->format == IW_FORMAT_NDJSON) {
		p->line_kind = IW_LINE_UNKNOWN;
		if (end > start) {
			p->event |= IW_EV_DATA;
			iw_event(f, w, q + 1);
		}
		return 0;
	}
	if (end == start) {
		p->line_kind = IW_LINE_UNKNOWN;
		iw_event(f, w, q + 1);
		return 0;
	}
	if (p->line_kind == IW_LINE_UNKNOWN)
		p->line_kind = iw_line_kind(w, start, end - start, IW_FORMAT_SSE);
	head = 0;
	if (p->line_kind == IW_LINE_DATA) {
		p->event |= IW_EV_DATA;
		if (p->state == IW_P_SCAVENGE)
			f->record.request.stream = 1;		 /* the head may have been lost */
		if (q - start < IW_CARRY && end - start >= 11) { /* else start may lie inside the line */
			iw_u32 v = start + 5;

			if (IW_AT(w, v) == ' ')
				v++;
			head = IW_LOAD(w, v) & IW_FIRST(6);
			if (head == IW_WORD('[', 'D', 'O', 'N', 'E', ']', 0, 0))
				p->event |= IW_EV_END;
		}
	} else if (p->line_kind == IW_LINE_COMMENT) {
		p->event |= IW_EV_COMMENT;
	} else if (p->line_kind == IW_LINE_EVENT && q - start < IW_CARRY) {
		iw_u32 v = start + 6;

		if (IW_AT(w, v) == ' ')
			v++;
		head = IW_LOAD(w, v);
		if ((head & IW_FIRST(4)) == IW_WORD('p', 'i', 'n', 'g', 0, 0, 0, 0))
			p->event |= IW_EV_PING;
		else if ((head & IW_FIRST(5)) == IW_WORD('e', 'r', 'r', 'o', 'r', 0, 0, 0))
			p->event |= IW_EV_ERROR;
	}
	p->line_kind = IW_LINE_UNKNOWN;
	return 0;
}

/* ---- Scanning ---- */

/* Line ends and key colons of the 64 bytes at pos, one bit each. */
IW_GLOBAL int iw_block(struct iw_window *w, iw_u32 pos)
{
	iw_u64 newline = 0, any = 0, carry;
	iw_u32 i;

	if (!w)
		return 0;
	carry = IW_AT(w, pos - 1) == '"' ? 0x80 : 0;
#ifdef __clang__
#pragma clang loop unroll(full)
#endif
	for (i = 0; i < 8; i++) {
		iw_u64 x = IW_LOAD(w, pos + 8 * i);
		iw_u64 n = iw_match(x, 0x0a0a0a0a0a0a0a0aull);
		iw_u64 q = iw_match(x, 0x2222222222222222ull);
		iw_u64 c = iw_match(x, 0x3a3a3a3a3a3a3a3aull) & (q << 8 | carry);

		carry = q >> 56;
		if (n)
			newline |= iw_gather(n) << (8 * i);
		if (n | c)
			any |= iw_gather(n | c) << (8 * i);
	}
	w->mask_newline = newline;
	w->mask_any = any;
	w->mask_base = pos;
	return 0;
}

/* Puts the bytes carried over in front of pos, or takes the last ones before pos. */
IW_GLOBAL int iw_carry_in(struct iw_flow *f, struct iw_window *w, iw_u32 pos)
{
	iw_u32 i;

	if (!f || !w)
		return 0;
	for (i = 0; i < IW_CARRY; i += 8)
		iw_store64(&w->buf[(pos - IW_CARRY + i) & (IW_WIN_SIZE - 1)],
			   iw_load64(&f->carry[w->direction & 1][i]));
	return 0;
}

IW_GLOBAL int iw_carry_out(struct iw_flow *f, struct iw_window *w, iw_u32 pos)
{
	iw_u32 i;

	if (!f || !w)
		return 0;
	for (i = 0; i < IW_CARRY; i += 8)
		iw_store64(&f->carry[w->direction & 1][i], IW_LOAD(w, pos - IW_CARRY + i));
	return 0;
}

/* Opens the segment at w->pos of at most `bytes`. */
IW_GLOBAL int iw_segment_open(struct iw_flow *f, struct iw_window *w, iw_u32 bytes)
{
	struct iw_parser *p;
	iw_u32 put_off, i;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	w->segment_open = 1;
	w->segment_start = w->pos;
	w->segment_end = w->pos + bytes;
	w->mask_any = 0;
	w->scan = w->pos;
	w->line_start = w->pos;
	if (p->line_bytes) {
		iw_carry_in(f, w, w->pos);
		put_off = p->line_bytes < IW_LOOKAHEAD ? p->line_bytes : IW_LOOKAHEAD;
		w->scan = w->pos - put_off;
		w->line_start = w->pos - (p->line_bytes < IW_CARRY ? p->line_bytes : IW_CARRY);
	}
	/* Keys near the end wait for their value, unless their line is complete. */
	w->last_newline = w->segment_end;
	if (w->final || IW_AT(w, w->segment_end - 1) == '\n')
		return 0;
	for (i = 0; i < IW_LOOKAHEAD + 1; i++) {
		if (w->last_newline <= w->segment_start) {
			w->last_newline = 0; /* the line began before this segment */
			break;
		}
		if (IW_AT(w, w->last_newline - 1) == '\n')
			break;
		w->last_newline--;
	}
	return 0;
}

/* Closes the segment: all its bytes have been scanned. */
IW_GLOBAL int iw_segment_close(struct iw_flow *f, struct iw_window *w)
{
	struct iw_parser *p;
	iw_u32 bytes;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	bytes = w->segment_end - w->line_start;
	if (w->line_start >= w->segment_end)
		bytes = 0;
	else if (w->line_start < w->segment_start && p->line_bytes >= IW_CARRY)
		bytes = p->line_bytes + (w->segment_end - w->segment_start); /* line started long before */
	if (bytes > 1u << 20)
		bytes = 1u << 20;
	if (bytes) {
		if (p->state == IW_P_HEAD && bytes >= IW_CARRY && !p->line_done) {
			/* A header line longer than what is kept: all that matters is in its first bytes. */
			if (w->line_start + IW_CARRY <= w->segment_end) {
				if (p->head_flags & IW_HEAD_FIRST_LINE) {
					p->head_flags &= ~IW_HEAD_FIRST_LINE;
					if (iw_start_line(f, w, p, w->line_start, w->segment_end) < 0) {
						iw_bad_start(f, w, p);
						p->state = IW_P_START;
						w->pos = w->segment_end;
						w->segment_open = 0;
						p->line_bytes = 0;
						return 0;
					}
				} else {
					iw_header_line(f, w, w->line_start, w->segment_end);
				}
			}
			p->line_done = 1;
		}
		if (p->line_kind == IW_LINE_UNKNOWN && p->state != IW_P_HEAD && p->state != IW_P_TRAILER)
			p->line_kind = iw_line_kind(w, w->line_start, bytes, p->format);
		iw_carry_out(f, w, w->segment_end);
	}
	p->line_bytes = bytes;
	w->pos = w->segment_end;
	w->segment_open = 0;
	return 0;
}

/* Scans one block of the open segment, or what is left of it. Returns 1 when the segment was left. */
IW_GLOBAL int iw_scan(struct iw_flow *f, struct iw_window *w)
{
	struct iw_parser *p;
	iw_u32 i;

	if (!f || !w)
		return 1;
	p = iw_parser_of(f, w->direction);
	if (!w->mask_any) {
		iw_u32 left;

		if (w->scan >= w->segment_end) {
			iw_segment_close(f, w);
			return 1;
		}
		iw_block(w, w->scan);
		left = w->segment_end - w->scan;
		if (left < 64)
			w->mask_any &= ~0ull >> ((64 - left) & 63);
		w->scan += 64;
	}
	for (i = 0; i < 6 && w->mask_any; i++) {
		iw_u32 bit = iw_lowest(w->mask_any) & 63;
		iw_u32 at = w->mask_base + bit;
		iw_u64 one = 1ull << bit;

		w->mask_any &= w->mask_any - 1;
		if (w->mask_newline & one) {
			if (IW_AT(w, at) != '\n' || at < w->segment_start)
				continue;
			if (p->state == IW_P_HEAD || p->state == IW_P_TRAILER) {
				if (iw_head_line(f, w, at)) {
					w->segment_open = 0;
					w->mask_any = 0;
					p->line_bytes = 0;
					return 1;
				}
			} else if (iw_body_line(f, w, at)) {
				w->segment_open = 0;
				w->mask_any = 0;
				p->line_bytes = 0;
				return 1;
			}
		} else if (p->state != IW_P_HEAD && p->state != IW_P_TRAILER) {
			if (at + IW_LOOKAHEAD > w->segment_end && at >= w->last_newline)
				continue; /* its value may go on in the next segment */
			if (IW_AT(w, at) == ':' && IW_AT(w, at - 1) == '"')
				iw_key(f, w, at);
		}
	}
	return 0;
}

/* The size line of an HTTP chunk, after the line end of the chunk before. */
IW_GLOBAL int iw_chunk_size(struct iw_flow *f, struct iw_window *w)
{
	struct iw_parser *p;
	iw_u32 i;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	for (i = 0; i < 32; i++) {
		iw_u8 c, digit;

		if (w->pos >= w->end)
			return 0;
		c = IW_AT(w, w->pos);
		w->pos++;
		if (c == '\n') {
			if (!p->chunk_digits)
				continue; /* end of the previous chunk's data */
			p->chunk_digits = 0;
			if (p->remain) {
				p->state = IW_P_CHUNK_DATA;
			} else {
				p->state = IW_P_TRAILER;
				/* The body's unfinished line stays in carry for FLUSH; trailer lines are looked at by length only. */
			}
			return 0;
		}
		if (c == '\r' || p->chunk_digits > 16)
			continue;
		digit = c >= '0' && c <= '9'			 ? c - '0'
			: (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
								 : 255;
		if (digit == 255 || p->chunk_digits == 16) {
			if (!p->chunk_digits) {
				/* Not a size where one is due: framing is lost. */
				iw_flag(&f->record.request.head, IW_REQ_APPROXIMATE);
				p->state = w->direction == iw_request_direction(f) ? IW_P_START : IW_P_SCAVENGE;
				return 0;
			}
			p->chunk_digits = 17; /* an extension: ignored up to the line end */
			continue;
		}
		if (!p->chunk_digits)
			p->remain = 0;
		p->remain = (p->remain << 4 | digit) & 0xffffffffffffull;
		p->chunk_digits++;
	}
	return 0;
}

/* Trailer lines: nothing in them matters but the blank one. Kept apart from the line scanner, whose carry still holds
 * the body's last bytes. */
IW_GLOBAL int iw_trailer(struct iw_flow *f, struct iw_window *w)
{
	struct iw_parser *p;
	iw_u32 i;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	for (i = 0; i < 64; i++) {
		iw_u8 c;

		if (w->pos >= w->end)
			return 0;
		c = IW_AT(w, w->pos);
		w->pos++;
		if (c == '\n') {
			if (!p->chunk_digits) {
				p->state = IW_P_FLUSH;
				return 0;
			}
			p->chunk_digits = 0;
		} else if (c != '\r') {
			p->chunk_digits = 1;
		}
	}
	return 0;
}

/* Ends the message whose body is over, after a last look at what was put off. */
IW_INLINE void iw_flush(struct iw_flow *f, struct iw_window *w, struct iw_parser *p)
{
	if (w->direction == iw_request_direction(f)) {
		iw_request_end(f, w, p);
		return;
	}
	if (p->event && p->format == IW_FORMAT_NDJSON)
		iw_event(f, w, w->pos);
	if (p->format == IW_FORMAT_JSON) {
		if (p->event & IW_EV_ERROR)
			iw_flag(&f->record.request.head, IW_REQ_ERROR_EVENT);
		p->event = 0;
	} else if (p->event & IW_EV_END) {
		p->event |= IW_EV_DATA; /* a last event without its blank line still ends the stream */
		iw_event(f, w, w->pos);
	}
	p->event = 0;
	p->line_bytes = 0;
	p->line_kind = IW_LINE_UNKNOWN;
	iw_response_end(f, w);
}

/* A message starts at w->pos. */
IW_GLOBAL int iw_message_start(struct iw_flow *f, struct iw_window *w)
{
	struct iw_parser *p;
	iw_u8 c;

	if (!f || !w)
		return IW_STEP_DONE;
	p = iw_parser_of(f, w->direction);
	c = IW_AT(w, w->pos);
	if (c == '\r' || c == '\n') {
		w->pos++;
		return IW_STEP_MORE;
	}
	if (w->direction == iw_request_direction(f)) {
		if (c < 'A' || c > 'Z' || (w->end - w->pos >= 8 && !iw_method(IW_LOAD(w, w->pos)))) {
			w->pos = w->end;
			return IW_STEP_DONE;
		}
		if (iw_request_begin(f, w))
			return IW_STEP_EMIT;
	} else {
		int begin;

		if (c != 'H') {
			w->pos = w->end;
			return IW_STEP_DONE;
		}
		begin = iw_response_begin(f, w);
		if (begin == 1)
			return IW_STEP_EMIT;
		if (begin == 2) {
			w->pos = w->end;
			return IW_STEP_DONE;
		}
		f->record.request.response_ns = w->now_ns;
		f->record.request.response_seq = iw_seq_of(w, w->pos) + 1;
		f->record.request.response_handed_ns =
			f->role == IW_ROLE_SERVER ? iw_handed(f, iw_seq_of(w, w->pos) + 1, w->now_ns) : w->now_ns;
		p->format = IW_FORMAT_SKIP;
	}
	p->state = IW_P_HEAD;
	p->head_flags = IW_HEAD_FIRST_LINE;
	p->head_bytes = 0;
	p->remain = 0;
	p->line_bytes = 0;
	p->line_done = 0;
	p->line_kind = IW_LINE_UNKNOWN;
	p->event = 0;
	p->chunk_digits = 0;
	return IW_STEP_MORE;
}

/* Bytes of a body that nobody looks at. */
IW_INLINE void iw_skip_body(struct iw_flow *f, struct iw_window *w, struct iw_parser *p, iw_u32 bytes)
{
	w->pos += bytes;
	p->remain -= p->state == IW_P_CLOSE ? 0 : bytes;
	if (w->direction == iw_request_direction(f)) {
		struct iw_request_head *head = iw_open_head(f, p);

		if (head)
			head->body_bytes += bytes;
	} else {
		f->record.request.response_body_bytes += bytes;
		if (f->record.request.stream)
			iw_opaque(f, w);
	}
}

/* ---- Chunks like the last one ---- */

/* Digits become '0' (as do : ; < = > ?). */
IW_INLINE iw_u64 iw_plain(iw_u64 x)
{
	iw_u64 t = (x & 0xf0f0f0f0f0f0f0f0ull) ^ 0x3030303030303030ull;

	return x & ~((((t - 0x0101010101010101ull) & ~t & 0x8080808080808080ull) >> 7) * 0x0f);
}

#define IW_MIX 0x9e3779b97f4a7c15ull
/* Hashes of `bytes` (8 to IW_PATTERN_MAX) at pos: as they are, or with all digits alike. Against accident only: a server
 * that forges them miscounts itself. */
IW_GLOBAL iw_u64 iw_shape_exact(struct iw_window *w, iw_u32 pos, iw_u32 bytes)
{
	iw_u64 a = bytes, b = 0, c = 0, d = 0;
	iw_u32 i, last = pos + bytes - 8;

	if (!w)
		return 0;
	for (i = 0; i < IW_PATTERN_MAX / 32; i++) {
		const iw_u8 *at = &IW_AT(w, pos);

		if (bytes < 32)
			break;
		a = (a ^ iw_load64(at)) * IW_MIX;
		b = (b ^ iw_load64(at + 8)) * IW_MIX;
		c = (c ^ iw_load64(at + 16)) * IW_MIX;
		d = (d ^ iw_load64(at + 24)) * IW_MIX;
		pos += 32;
		bytes -= 32;
	}
	for (i = 0; i < 3; i++) {
		if (bytes < 8)
			break;
		a = (a ^ IW_LOAD(w, pos)) * IW_MIX;
		pos += 8;
		bytes -= 8;
	}
	d = (d ^ IW_LOAD(w, last)) * IW_MIX;
	return a + (b >> 7) + b + (c >> 13) + c + (d >> 29) + d;
}

IW_GLOBAL iw_u64 iw_shape_plain(struct iw_window *w, iw_u32 pos, iw_u32 bytes)
{
	iw_u64 a = bytes;
	iw_u32 i, last = pos + bytes - 8;

	if (!w)
		return 0;
	for (i = 0; i < IW_PATTERN_MAX / 8; i++) {
		if (bytes < 8)
			break;
		a = (a ^ iw_plain(IW_LOAD(w, pos))) * IW_MIX;
		pos += 8;
		bytes -= 8;
	}
	a = (a ^ iw_plain(IW_LOAD(w, last))) * IW_MIX;
	return a + (a >> 29);
}

IW_INLINE iw_u64 iw_shape(struct iw_window *w, iw_u32 at, iw_u32 before, iw_u32 close, iw_u32 after, iw_u8 plain)
{
	if (plain)
		return iw_shape_plain(w, at, before) * 3 + iw_shape_plain(w, close, after);
	return iw_shape_exact(w, at, before) * 3 + iw_shape_exact(w, close, after);
}

/* Whether [pos, pos + bytes) is the inside of a JSON string: no quote, no line end, no backslash at its end. */
IW_GLOBAL int iw_plain_text(struct iw_window *w, iw_u32 pos, iw_u32 bytes)
{
	iw_u32 i;

	if (!w || !bytes || IW_AT(w, pos + bytes - 1) == '\\')
		return 0;
	for (i = 0; i < IW_PATTERN_MAX / 8; i++) {
		iw_u64 x = IW_LOAD(w, pos);
		iw_u64 bad = iw_match(x, 0x2222222222222222ull) | iw_match(x, 0x0a0a0a0a0a0a0a0aull);

		if (bytes < 8)
			return !(bad & IW_FIRST(bytes & 7));
		if (bad)
			return 0;
		pos += 8;
		bytes -= 8;
		if (!bytes)
			return 1;
	}
	return 0;
}

/* Takes the HTTP chunk at w->pos at once if it looks like the template. Returns 1 if it did. */
IW_GLOBAL int iw_take_like(struct iw_flow *f, struct iw_window *w)
{
	struct iw_parser *p;
	struct iw_pattern *t;
	iw_u32 i, size = 0, at, stop, before, after;
	iw_u64 x;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	t = &p->pattern;
	before = t->before_bytes;
	after = t->after_bytes;
	if (!before || p->chunk_digits || p->line_bytes || p->event || w->direction == iw_request_direction(f))
		return 0;
	x = IW_LOAD(w, w->pos);
	for (i = 0; i < 5; i++) {
		iw_u8 c = (iw_u8)x, digit = c - '0';

		if (digit > 9) {
			digit = (c | 0x20) - 'a' + 10;
			if (digit < 10 || digit > 15)
				break;
		}
		size = size << 4 | digit;
		x >>= 8;
	}
	if (i == 0 || (iw_u16)x != ('\r' | '\n' << 8))
		return 0;
	at = w->pos + i + 2;
	stop = at + size + 2;
	if (stop > w->end || size + 2 <= before + after)
		return 0;
	if (iw_shape(w, at, before, stop - after, after, t->plain) != t->shape ||
	    !iw_plain_text(w, at + before, size + 2 - before - after))
		return 0;
	f->record.request.activity_ns = w->now_ns;
	f->record.request.response_body_bytes += size;
	w->pos = stop;
	if (t->event == (IW_EV_DATA | IW_EV_CONTENT) && f->record.request.output_ns) { /* iw_event in short */
		f->record.request.events++;
		f->record.request.chunks++;
		w->chunks++;
		w->last_content_seq = iw_seq_of(w, stop - 2);
		return 1;
	}
	p->event = t->event;
	iw_event(f, w, stop - 2);
	return 1;
}

/* An HTTP chunk is over. Remembers its looks if it was one event with one text. */
IW_GLOBAL int iw_learn(struct iw_flow *f, struct iw_window *w)
{
	struct iw_pattern *t;
	struct iw_parser *p;
	iw_u64 shape;
	iw_u32 i, at, close = 0, pos, before, after;

	if (!f || !w)
		return 0;
	p = iw_parser_of(f, w->direction);
	t = &p->pattern;
	w->learn = 0;
	if (w->texts != 1 || w->other || p->event || p->line_bytes || f->record.request.events != w->learn_events + 1 ||
	    w->pos + 2 > w->end || IW_AT(w, w->pos) != '\r' || IW_AT(w, w->pos + 1) != '\n')
		return 0;
	pos = w->value_pos;
	for (i = 0; i < IW_PATTERN_MAX / 8; i++) {
		iw_u64 quote = iw_match(IW_LOAD(w, pos), 0x2222222222222222ull);

		if (quote) {
			close = pos + (iw_lowest(quote) >> 3);
			break;
		}
		pos += 8;
	}
	at = w->segment_start;
	before = w->value_pos - at;
	after = w->pos + 2 - close;
	if (!close || IW_AT(w, close - 1) == '\\' || before < IW_PATTERN_MIN || before > IW_PATTERN_MAX ||
	    after < IW_PATTERN_MIN || after > IW_PATTERN_MAX)
		return 0;
	shape = iw_shape(w, at, before, close, after, t->plain);
	if (!t->plain && t->before_bytes == before && t->after_bytes == after && t->shape != shape) {
		t->plain = 1; /* of the same size and yet not alike: numbers in it change */
		shape = iw_shape(w, at, before, close, after, 1);
	}
	t->shape = shape;
	t->event = (iw_u16)w->event;
	t->before_bytes = (iw_u16)before;
	t->after_bytes = (iw_u16)after;
	return 0;
}

/* One step of the machine. Call until it returns IW_STEP_DONE. */

IW_GLOBAL int iw_step(struct iw_flow *f, struct iw_window *w)
{
	struct iw_parser *p;
	iw_u32 left, bytes;

	if (!f || !w)
		return IW_STEP_DONE;
	p = iw_parser_of(f, w->direction);
	if (p->state == IW_P_FLUSH) {
		if (p->line_bytes && p->format != IW_FORMAT_SKIP && w->direction != iw_request_direction(f)) {
			/* The carried bytes once more, as a complete line, in a segment of no new bytes. */
			if (!w->segment_open) {
				w->final = 1;
				iw_segment_open(f, w, 0);
				w->segment_end = w->pos;
			}
			if (!iw_scan(f, w))
				return IW_STEP_MORE;
			w->final = 0;
			p->line_bytes = 0;
			if (p->format == IW_FORMAT_NDJSON)
				p->event |= IW_EV_DATA;
			else if (p->format == IW_FORMAT_SSE)
				iw_body_line(f, w, w->segment_end);
			return IW_STEP_MORE;
		}
		iw_flush(f, w, p);
		return IW_STEP_MORE;
	}
	if (w->pos >= w->end)
		return IW_STEP_DONE;
	left = w->end - w->pos;
	if (w->direction != iw_request_direction(f))
		f->record.request.activity_ns = w->now_ns;
	switch (p->state) {
	case IW_P_START:
		return iw_message_start(f, w);
	case IW_P_HEAD:
		if (!w->segment_open) {
			p->head_bytes += left;
			if (p->head_bytes > IW_HEAD_MAX) {
				p->state = IW_P_DEAD;
				iw_flag(&f->record.request.head, IW_REQ_APPROXIMATE);
				return IW_STEP_MORE;
			}
			iw_segment_open(f, w, left);
		}
		iw_scan(f, w);
		return IW_STEP_MORE;
	case IW_P_TRAILER:
		iw_trailer(f, w);
		return IW_STEP_MORE;
	case IW_P_CHUNK_SIZE:
		if (!p->chunk_digits && !p->line_bytes && !p->event) {
			if (iw_take_like(f, w))
				return IW_STEP_MORE;
			w->learn = 1;
			w->learn_events = f->record.request.events;
			w->texts = 0;
			w->other = 0;
		}
		iw_chunk_size(f, w);
		return IW_STEP_MORE;
	case IW_P_LENGTH:
	case IW_P_CHUNK_DATA:
	case IW_P_CLOSE:
		if (p->format == IW_FORMAT_SKIP || w->direction == iw_request_direction(f)) {
			bytes = left < p->remain ? left : (iw_u32)p->remain;
			iw_skip_body(f, w, p, bytes);
		} else {
			if (!w->segment_open) {
				bytes = left < p->remain ? left : (iw_u32)p->remain;
				w->final = p->state == IW_P_LENGTH && bytes == p->remain;
				iw_segment_open(f, w, bytes);
				f->record.request.response_body_bytes += bytes;
				if (p->state != IW_P_CLOSE)
					p->remain -= bytes;
			}
			if (!iw_scan(f, w))
				return IW_STEP_MORE;
			w->final = 0;
		}
		if (p->state == IW_P_CHUNK_DATA && !p->remain) {
			p->state = IW_P_CHUNK_SIZE;
			p->chunk_digits = 0;
			if (w->learn)
				iw_learn(f, w);
		} else if (p->state == IW_P_LENGTH && !p->remain) {
			p->state = IW_P_FLUSH;
		}
		return IW_STEP_MORE;
	case IW_P_SCAVENGE:
		if (!w->segment_open) {
			iw_segment_open(f, w, left);
			f->record.request.response_body_bytes += left;
		}
		iw_scan(f, w);
		return IW_STEP_MORE;
	default:
		w->pos = w->end;
		if (w->direction != iw_request_direction(f))
			f->record.request.response_body_bytes += left;
		return IW_STEP_DONE;
	}
}

/* How many of the next `bytes` of this direction can be skipped without being looked at. A body's last bytes are left
 * for iw_step, which ends the message. */
IW_INLINE iw_u32 iw_skippable(struct iw_flow *f, iw_u32 direction, iw_u32 bytes)
{
	struct iw_parser *p = iw_parser_of(f, direction);

	if (p->state == IW_P_DEAD)
		return bytes;
	if (p->state != IW_P_LENGTH && p->state != IW_P_CHUNK_DATA && p->state != IW_P_CLOSE)
		return 0;
	if (p->format != IW_FORMAT_SKIP && direction != iw_request_direction(f))
		return 0;
	if (p->remain > bytes)
		return bytes;
	return p->remain > IW_WIN_BYTES ? (iw_u32)p->remain - IW_WIN_BYTES : 0;
}

#endif
