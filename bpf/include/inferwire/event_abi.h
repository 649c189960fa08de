/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * What kernel programs and the agent say to each other: the only header that both worlds include.
 *
 * Rules: fixed-width fields, the unit in the name (_ns, _us, _bytes), CLOCK_MONOTONIC nanoseconds, 0 = not known,
 * no pointers, bool, enum or size_t members, never packed, padding is explicit. tests/unit/abi checks that the
 * kernel objects' BTF has the same offsets as this header compiled for C++.
 */
#ifndef INFERWIRE_EVENT_ABI_H
#define INFERWIRE_EVENT_ABI_H

#ifndef __bpf__
#include <stdint.h>
typedef uint8_t iw_u8;
typedef uint16_t iw_u16;
typedef uint32_t iw_u32;
typedef uint64_t iw_u64;
#else
typedef unsigned char iw_u8;
typedef unsigned short iw_u16;
typedef unsigned int iw_u32;
typedef unsigned long long iw_u64;
#endif

#define IW_ABI_VERSION 2

/* Kinds of record. */
#define IW_REC_IDLE 0	     /* struct iw_record, from the iterator only: a connection without an open request */
#define IW_REC_FINAL 1	     /* struct iw_record: the request has ended */
#define IW_REC_PARTIAL 2     /* struct iw_record: cumulative, the request is still open (first chunk, iterator) */
#define IW_REC_DELIVERY 3    /* struct iw_delivery: one per delivery, only with tracing on */
#define IW_REC_RESET 4	     /* struct iw_reset: a connection worth telling of was reset */
#define IW_REC_LISTEN_DROP 5 /* struct iw_listener: connections were dropped; at most one a second per listener */
#define IW_REC_KINDS 6
/* From the walk over sockets only. */
#define IW_REC_LISTENER 6 /* struct iw_listener: a listening socket now */
#define IW_REC_SOCKET 7	  /* struct iw_socket_state: any other TCP socket now; in the ring buffer an owner's first */

#define IW_ROLE_UNKNOWN 0
#define IW_ROLE_SERVER 1 /* accepted the connection, or receives the requests */
#define IW_ROLE_CLIENT 2

#define IW_METHOD_NONE 0
#define IW_METHOD_GET 1
#define IW_METHOD_HEAD 2
#define IW_METHOD_POST 3
#define IW_METHOD_PUT 4
#define IW_METHOD_DELETE 5
#define IW_METHOD_OPTIONS 6
#define IW_METHOD_PATCH 7
#define IW_METHOD_CONNECT 8
#define IW_METHOD_TRACE 9

/* Routes that are LLM routes by themselves; configured ones have ids from IW_ROUTE_CONFIGURED on.
 * X(id, path); a '*' stands for one path segment (only in the Triton routes). */
#define IW_ROUTES(X)                          \
	X(1, "/v1/chat/completions")          \
	X(2, "/v1/completions")               \
	X(3, "/v1/responses")                 \
	X(4, "/v1/messages")                  \
	X(5, "/v1/embeddings")                \
	X(6, "/generate")                     \
	X(7, "/generate_stream")              \
	X(8, "/api/chat")                     \
	X(9, "/api/generate")                 \
	X(10, "/completion")                  \
	X(11, "/api/embed")                   \
	X(12, "/api/embeddings")              \
	X(13, "/completions")                 \
	X(14, "/chat/completions")            \
	X(15, "/v1/rerank")                   \
	X(16, "/v2/models/*/generate_stream") \
	X(17, "/v2/models/*/generate")        \
	X(18, "/infer")                       \
	X(19, "/embeddings")
#define IW_ROUTE_OTHER 0
#define IW_ROUTE_TRITON_STREAM 16
#define IW_ROUTE_TRITON 17
#define IW_ROUTE_CONFIGURED 32
#define IW_ROUTE_MAX 64

#define IW_FORMAT_SKIP 0 /* body only measured */
#define IW_FORMAT_SSE 1
#define IW_FORMAT_NDJSON 2
#define IW_FORMAT_JSON 3

#define IW_ENCODING_IDENTITY 0
#define IW_ENCODING_GZIP 1
#define IW_ENCODING_BR 2
#define IW_ENCODING_DEFLATE 3
#define IW_ENCODING_ZSTD 4
#define IW_ENCODING_OTHER 5

#define IW_OUTCOME_NONE 0 /* still open */
#define IW_OUTCOME_COMPLETE 1
#define IW_OUTCOME_ERROR_IN_STREAM 2
#define IW_OUTCOME_TRUNCATED_CLEAN 3
#define IW_OUTCOME_TRUNCATED_ABRUPT 4
#define IW_OUTCOME_CLIENT_ABORT 5
#define IW_OUTCOME_RESET 6
#define IW_OUTCOME_RESET_STALE_REUSE 7
#define IW_OUTCOME_NO_RESPONSE 8

#define IW_SIDE_NONE 0
#define IW_SIDE_SERVER 1
#define IW_SIDE_CLIENT 2

/* Flags of a request. */
#define IW_REQ_APPROXIMATE (1u << 0)   /* bytes could not be put in order: counts and times may be off */
#define IW_REQ_END_MARKER (1u << 1)    /* the API's own end marker was seen */
#define IW_REQ_ERROR_EVENT (1u << 2)   /* an error event inside the stream */
#define IW_REQ_RESPONSE_DONE (1u << 3) /* the response's framing said that it is complete */
#define IW_REQ_REQUEST_DONE (1u << 4)  /* the request's last byte has passed */
#define IW_REQ_READ_HOOK (1u << 5)     /* the read hook works on this kernel */
#define IW_REQ_HANDED_HOOK (1u << 6)   /* first content waited in the send queue, its hand-over was timed */
#define IW_REQ_RETRANSMITTED (1u << 7)
#define IW_REQ_EXPECT_CONTINUE (1u << 8)
#define IW_REQ_USAGE (1u << 9)
#define IW_REQ_LATE_ACKS (1u << 10) /* an ACK came later than the path explains: delivered is an estimate */
#define IW_REQ_UPGRADED (1u << 11)
#define IW_REQ_EARLY_RESPONSE (1u << 12)  /* answered before the request's last byte */
#define IW_REQ_FIRST_SENT (1u << 13)	  /* partial record of the first chunk was sent */
#define IW_REQ_MARKS_MERGED (1u << 14)	  /* more deliveries in flight than are kept: some share a delivery time */
#define IW_REQ_NO_MARKER_ROUTE (1u << 15) /* the route's protocol has no end marker */

#define IW_CONN_MIDWAY (1u << 0)       /* the connection is older than the agent */
#define IW_CONN_ACCEPT_BOUND (1u << 1) /* accepted_ns is an upper bound (first read) */

#define IW_GAP_EDGES_MAX 32
#define IW_BURST_BUCKETS 8 /* 1 2 4 8 16 32 64 more */
#define IW_PHASES_MAX 8
#define IW_RETRANS_TYPES 4 /* fast rto tlp other */
#define IW_TEXT_MAX 64

/* Phases, in order. */
#define IW_PHASE_UPLOAD 0
#define IW_PHASE_ACCEPT_WAIT 1
#define IW_PHASE_READ_WAIT 2
#define IW_PHASE_SERVER 3
#define IW_PHASE_HOLD 4
#define IW_PHASE_FIRST_DELIVERY 5
#define IW_PHASE_STREAM 6
#define IW_PHASE_DRAIN 7
/* Client: send, wait, first_read, stream, drain are kept at 0, 3, 5, 6, 7. */

struct iw_header {
	iw_u32 kind;
	iw_u32 size_bytes;
	iw_u64 time_ns; /* when the record was written */
};

/* Who: one TCP connection seen from one of its sockets. */
struct iw_conn {
	iw_u64 cookie; /* socket cookie, unique on the node until reboot */
	iw_u64 socket_cgroup_id;
	iw_u64 owner_cgroup_id; /* of the process, taken in process context */
	iw_u64 syn_ns;		/* client: SYN sent */
	iw_u64 established_ns;
	iw_u64 accepted_ns;
	iw_u8 local_addr[16]; /* IPv4 as v4-mapped */
	iw_u8 remote_addr[16];
	iw_u16 local_port; /* host order */
	iw_u16 remote_port;
	iw_u16 family; /* 2 IPv4 (also on a v4-mapped socket), 10 IPv6 */
	iw_u8 role;
	iw_u8 request_open; /* 1: request is one that has begun and not ended */
	iw_u32 owner_pid;
	iw_u32 flags;
	iw_u32 handshake_us; /* server: the first RTT sample */
	iw_u32 requests;     /* request heads seen on this connection */
	char comm[16];
};

/* The request side of one request; also what waits in the pipeline. */
struct iw_request_head {
	iw_u64 first_byte_ns;
	iw_u64 last_byte_ns;
	iw_u64 body_bytes;
	iw_u64 idle_before_ns; /* since the previous response's end on this connection */
	char trace_id[32];     /* hex digits of traceparent's trace id */
	iw_u32 end_seq;	       /* sequence number after the last byte, valid with request done */
	iw_u32 ordinal;
	iw_u8 method;
	iw_u8 route;
	iw_u8 has_trace;
	iw_u8 pad0;
	iw_u32 flags;
};

struct iw_request {
	/* Marks. */
	iw_u64 read_ns;		      /* server: the application has read the request's last byte */
	iw_u64 response_ns;	      /* first byte of the final response head transmitted (client: came in) */
	iw_u64 response_handed_ns;    /* server: that byte handed to TCP */
	iw_u64 response_delivered_ns; /* server: that byte acknowledged; client: read */
	iw_u64 content_handed_ns;     /* server: first content handed to TCP */
	iw_u64 content_delivered_ns;  /* server: acknowledged; client: read */
	iw_u64 end_handed_ns;	      /* end marker handed to TCP (client: came in) */
	iw_u64 end_ns;		      /* last response byte transmitted (client: came in) */
	iw_u64 done_ns;		      /* last response byte acknowledged (client: read) */
	iw_u64 server_fin_ns;	      /* first FIN or RST of each side */
	iw_u64 client_fin_ns;
	/* What the tail says; ~0 = not said. */
	iw_u64 queue_ns;
	iw_u64 prefill_ns;
	iw_u64 load_ns;
	iw_u32 tokens_output;
	iw_u32 tokens_input;
	iw_u32 first_content_seq; /* sequence number after the first content event */
	iw_u32 end_seq;		  /* after the last response byte */
	iw_u32 response_seq;	  /* after the first response byte */
	iw_u16 code;
	iw_u8 format;
	iw_u8 encoding;
	iw_u8 stream; /* 1: an event stream */
	iw_u8 outcome;
	iw_u8 closed_first;
	iw_u8 reset; /* side that sent RST */
	/* Gaps between deliveries. */
	iw_u32 gap_sent[IW_GAP_EDGES_MAX + 1];
	iw_u32 gap_delivered[IW_GAP_EDGES_MAX + 1];
	/* Path. */
	iw_u16 retransmits[IW_PHASES_MAX][IW_RETRANS_TYPES];
	char response_id[IW_TEXT_MAX];
	char model[IW_TEXT_MAX];
	char finish_reason[16];
	iw_u32 pad1[3];
	iw_u64 rtt_sum_us;
	iw_u32 rtt_min_us;
	iw_u32 rtt_max_us;
	iw_u32 rtt_count;
	iw_u32 retransmitted_segments;
	iw_u32 chunks_reasoning;
	iw_u32 chunks_tool;
	iw_u32 comments; /* comments and pings */
	iw_u32 pad2;
	iw_u64 content_ns; /* first content transmitted (client: came in) */
	struct iw_request_head head;
	/* What every chunk touches: side by side, so that the kernel loads few cache lines. */
	iw_u64 request_acked_ns;  /* client: last request byte acknowledged */
	iw_u64 output_ns;	  /* first content that is not reasoning */
	iw_u64 last_content_ns;	  /* latest content transmitted (client: came in) */
	iw_u64 last_delivered_ns; /* server: latest content acknowledged */
	iw_u64 activity_ns;	  /* latest response byte of any kind */
	iw_u64 response_body_bytes;
	iw_u64 deliveries; /* packets that brought content */
	iw_u64 gap_sent_sum_ns;
	iw_u64 gap_sent_max_ns;
	iw_u64 gap_delivered_sum_ns;
	iw_u64 gap_delivered_max_ns;
	iw_u32 chunks; /* events with content of any kind */
	iw_u32 events; /* all events */
	iw_u32 burst[IW_BURST_BUCKETS];
};

struct iw_record {
	struct iw_header header;
	struct iw_conn conn;
	struct iw_request request;
};

#define IW_VIEW_SENT 1
#define IW_VIEW_DELIVERED 2

struct iw_delivery {
	struct iw_header header;
	iw_u64 cookie;
	iw_u32 ordinal;
	iw_u32 chunks;
	iw_u8 role;
	iw_u8 view;
	iw_u8 pad0[6];
};

/* Requests that are only counted: routes that are not LLM routes, and requests whose record was lost. */
struct iw_count_key {
	iw_u64 cgroup_id;
	iw_u32 pid;
	iw_u16 port; /* server: local port; client: the peer's */
	iw_u16 code;
	iw_u8 role;
	iw_u8 route;
	iw_u8 outcome;
	iw_u8 pad0[5];
};

struct iw_count {
	iw_u64 requests;
	iw_u64 chunks;
	iw_u64 tokens_output;
	iw_u64 tokens_input;
	char comm[16];
};

/* ---- TCP: what happened to the connections of one owner ---- */

#define IW_RETRANSMIT_SYN 0
#define IW_RETRANSMIT_SYNACK 1
#define IW_RETRANSMIT_FAST 2
#define IW_RETRANSMIT_RTO 3
#define IW_RETRANSMIT_TLP 4
#define IW_RETRANSMIT_OTHER 5
#define IW_RETRANSMIT_TYPES 6

#define IW_CONNECT_OK 0
#define IW_CONNECT_REFUSED 1
#define IW_CONNECT_RESET 2
#define IW_CONNECT_TIMEOUT 3
#define IW_CONNECT_UNREACHABLE 4
#define IW_CONNECT_ABORTED 5 /* closed by the caller before there was an answer */
#define IW_CONNECT_NO_PORT 6 /* no local port was free: nothing was sent */
#define IW_CONNECT_RESULTS 7

/* Why a connection was reset; `sent` are those of this side's kernel, `received` those of the peer. */
#define IW_RESET_NO_LISTENER 0
#define IW_RESET_LISTEN_QUEUE_FULL 1
#define IW_RESET_ABORT_ON_CLOSE 2 /* closed with unread data */
#define IW_RESET_ABORT_ON_LINGER 3
#define IW_RESET_ABORT_ON_DATA 4       /* data came in on a socket that was closed */
#define IW_RESET_ON_DATA_AFTER_CLOSE 5 /* ... on one that was gone, or in TIME_WAIT */
#define IW_RESET_STALE_REUSE 6	       /* a request on a pooled connection that the other side was closing */
#define IW_RESET_KEEPALIVE_TIMEOUT 7
#define IW_RESET_USER_TIMEOUT 8
#define IW_RESET_MEMORY 9
#define IW_RESET_INVALID_SEGMENT 10
#define IW_RESET_FIREWALL 11 /* not sent by the peer itself */
#define IW_RESET_PEER 12
#define IW_RESET_UNKNOWN 13
#define IW_RESET_CAUSES 14

#define IW_DIRECTION_RECEIVED 0
#define IW_DIRECTION_SENT 1

/* Upper edges of times in the kernel's TCP histograms, microseconds. X(edge_us) */
#define IW_TCP_EDGES(X) \
	X(50)           \
	X(100)          \
	X(250)          \
	X(500) X(1000) X(2500) X(5000) X(10000) X(25000) X(50000) X(100000) X(200000) X(500000) X(1000000) X(5000000)
#define IW_TCP_EDGES_COUNT 15

/* One row per owner, role and service port. */
struct iw_tcp_key {
	iw_u64 cgroup_id;
	iw_u32 pid;  /* 0: not known */
	iw_u16 port; /* of the service: server: local port; client: the peer's; 0: role not known */
	iw_u8 role;
	iw_u8 pad0;
};

struct iw_tcp_times {
	iw_u64 buckets[IW_TCP_EDGES_COUNT + 1]; /* not cumulative */
	iw_u64 sum_us;
};

/* Only sums of 64 bits, but for the name at the end: the agent takes differences word by word. */
struct iw_tcp_sums {
	iw_u64 retransmits[IW_RETRANSMIT_TYPES]; /* segments */
	iw_u64 connects[IW_CONNECT_RESULTS];
	iw_u64 resets[2][IW_RESET_CAUSES]; /* by IW_DIRECTION_* */
	/* By IW_DIRECTION_*: what came in, what went out. */
	iw_u64 segments[2];
	iw_u64 payload_bytes[2];
	iw_u64 header_bytes[2];	  /* IP and TCP */
	iw_u64 zero_window_us[2]; /* the peer's window was 0; ours was. Followed connections only */
	iw_u64 opened;		  /* connections established */
	struct iw_tcp_times rtt;
	struct iw_tcp_times queueing; /* each RTT sample above the lowest of the path's last minutes */
	struct iw_tcp_times connect;
	struct iw_tcp_times accept_wait; /* exact ones only */
	char comm[16];
};

/* A reset of a followed connection, or a stale reuse. */
struct iw_reset {
	struct iw_header header;
	iw_u64 cookie;
	iw_u64 cgroup_id;
	iw_u64 established_ns;
	iw_u64 idle_ns; /* before the data that the reset answers, or since the last data */
	iw_u8 local_addr[16];
	iw_u8 remote_addr[16];
	iw_u16 local_port;
	iw_u16 remote_port;
	iw_u16 family;
	iw_u8 role;
	iw_u8 direction;
	iw_u8 cause;
	iw_u8 closed_first; /* IW_SIDE_* */
	iw_u8 request_open;
	iw_u8 kernel_reason; /* enum sk_rst_reason of this kernel; 0: it does not say */
	iw_u32 pid;
	iw_u32 ordinal; /* of the request that was cut, or the latest */
	iw_u32 chunks;	/* that it had brought */
	char comm[16];
};

#define IW_DROP_ACCEPT_QUEUE_FULL 0 /* ListenOverflows */
#define IW_DROP_SYN_QUEUE_FULL 1    /* TCPReqQFullDrop */
#define IW_DROP_MAX_SYN_BACKLOG 2
#define IW_DROP_OTHER 3
#define IW_DROP_REASONS 4

/* A listening socket: cumulative since the agent first saw it. */
struct iw_listener {
	struct iw_header header;
	iw_u64 cookie;
	iw_u64 cgroup_id;
	iw_u8 local_addr[16];
	iw_u16 local_port;
	iw_u16 family;
	iw_u32 pid;
	iw_u32 netns;
	iw_u32 accept_queue_length;
	iw_u32 accept_queue_limit; /* the lower of the application's backlog and somaxconn */
	iw_u32 syn_queue_length;
	iw_u32 somaxconn;
	iw_u32 max_syn_backlog;
	iw_u32 reason; /* of the latest drop */
	iw_u32 pad0;
	iw_u64 drops[IW_DROP_REASONS];
	iw_u64 cookies; /* SYN cookies sent */
	char comm[16];
};

/* Any other TCP socket that a process has open. */
struct iw_socket_state {
	struct iw_header header;
	iw_u64 cookie;
	iw_u64 cgroup_id;
	iw_u32 pid;
	iw_u16 port; /* as in iw_tcp_key */
	iw_u8 role;
	iw_u8 state; /* TCP state of the kernel: 1 ESTABLISHED, 2 SYN_SENT, ... */
	char comm[16];
};

/* Set by the agent before load: hashes of the routes' paths by id (FNV-1a, 0 = unused), and the upper edges of the gap
 * histograms. */
struct iw_routes {
	iw_u64 hash[IW_ROUTE_MAX];
};

struct iw_edges {
	iw_u64 le_ns[IW_GAP_EDGES_MAX];
	iw_u32 count;
	iw_u32 pad0;
};

/* Per-CPU counters, by index: what the usual packet counts comes first. */
#define IW_STAT_REQUESTS_FINISHED 8 /* followed requests that ended */
#define IW_STAT_CHUNKS 9	    /* content events, all requests */
#define IW_STAT_DELIVERIES 10	    /* packets with content */
#define IW_STAT_FOLLOWED 11	    /* packets with payload of followed connections */
#define IW_STAT_IGNORED 12	    /* packets of connections that are not followed */
#define IW_STAT_HOLE_DROPPED 13	    /* a segment after a hole could not be kept */
#define IW_STAT_HOLE_KEPT 14
#define IW_STAT_RESYNC 15	   /* bytes missing from the parsed stream */
#define IW_STAT_SUSPECT 16	   /* segments whose checksum did not fit */
#define IW_STAT_SUSPECT_DROPPED 17 /* ... and which the kernel did not take */
#define IW_STAT_NOT_HTTP 18	   /* responses or requests that are not HTTP/1 where one was due */
#define IW_STAT_PIPELINE_FULL 19
#define IW_STAT_STORAGE_FAILED 20   /* no memory for a socket's state */
#define IW_STAT_COUNTS_FULL 21	    /* request counted nowhere but here */
#define IW_STAT_LOCK_BUSY 22	    /* two ingress programs met on one socket: bytes skipped */
#define IW_STAT_LISTENER_BYTES 23   /* payload that arrived on a listener and was kept for the child */
#define IW_STAT_OVERLONG 24	    /* packet with more structure than one program run may look at */
#define IW_STAT_NO_SLOT 25	    /* no scratch slot free: bytes skipped */
#define IW_STAT_MALFORMED 26	    /* framing errors */
#define IW_STAT_FLOWS 27	    /* flow states created */
#define IW_STAT_SUMS_FULL 28	    /* TCP events counted nowhere but here */
#define IW_STAT_RESETS_NO_SOCKET 29 /* resets sent for no socket of ours: nobody's */
#define IW_STAT_RECORDS_SEEN 32	    /* + kind */
#define IW_STAT_RECORDS_LOST 40	    /* + kind: no room in the ring buffer */
#define IW_STAT_MAX 48
struct iw_stats {
	iw_u64 n[IW_STAT_MAX];
};

#endif
