/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
 *
 * What the pure C code needs to be both a BPF program and native code.
 */
#ifndef INFERWIRE_BASE_H
#define INFERWIRE_BASE_H

#include "state.h"

#define IW_INLINE static inline __attribute__((always_inline))

#ifdef __bpf__
/* A global function is verified once, by itself: this keeps the verifier's work small. It must return a scalar and
 * must check its pointers. */
#define IW_GLOBAL __attribute__((noinline))
IW_INLINE iw_u64 iw_load64(const iw_u8 *at) { return *(const iw_u64 *)at; }
/* The compiler forgets what it knows of a 64-bit value, so that the check that follows stays for the verifier. */
#define IW_FORGET(value) asm volatile("" : "+r"(value))
IW_INLINE void iw_store64(iw_u8 *at, iw_u64 value) { *(iw_u64 *)at = value; }
#else
#include <string.h>
#define IW_GLOBAL static
#define IW_FORGET(value)
IW_INLINE iw_u64 iw_load64(const iw_u8 *at)
{
	iw_u64 value;
	memcpy(&value, at, 8);
	return value;
}
IW_INLINE void iw_store64(iw_u8 *at, iw_u64 value) { memcpy(at, &value, 8); }
#endif

/* Window access: every index is masked, so hostile positions stay inside. */
#define IW_AT(w, pos) ((w)->buf[(pos) & (IW_WIN_SIZE - 1)])
#define IW_LOAD(w, pos) iw_load64(&(w)->buf[(pos) & (IW_WIN_SIZE - 1)])

/* Eight characters as a little-endian word. */
#define IW_WORD(a, b, c, d, e, f, g, h)                                                                       \
	((iw_u64)(iw_u8)(a) | (iw_u64)(iw_u8)(b) << 8 | (iw_u64)(iw_u8)(c) << 16 | (iw_u64)(iw_u8)(d) << 24 | \
	 (iw_u64)(iw_u8)(e) << 32 | (iw_u64)(iw_u8)(f) << 40 | (iw_u64)(iw_u8)(g) << 48 | (iw_u64)(iw_u8)(h) << 56)
#define IW_LOWER 0x2020202020202020ull
/* Words with only the first (low) or last (high) n bytes. */
#define IW_FIRST(n) (~0ull >> (64 - 8 * (n)))
#define IW_LAST(n) (~0ull << (64 - 8 * (n)))

IW_INLINE int iw_after(iw_u32 a, iw_u32 b) { return (int)(a - b) > 0; }
IW_INLINE int iw_reached(iw_u32 a, iw_u32 b) { return (int)(a - b) >= 0; }

/* 0x80 in every byte of x that equals the byte repeated in pattern; a byte just above a match may be marked too
 * when it differs from the pattern by one bit: callers look again. */
IW_INLINE iw_u64 iw_match(iw_u64 x, iw_u64 pattern)
{
	iw_u64 v = x ^ pattern;
	return (v - 0x0101010101010101ull) & ~v & 0x8080808080808080ull;
}

/* One bit per byte, from 0x80 marks. */
IW_INLINE iw_u64 iw_gather(iw_u64 marks) { return ((marks >> 7) * 0x0102040810204080ull) >> 56; }

/* Index of the lowest set bit, without a branch (de Bruijn sequence: BPF has no such instruction). x is not 0. */
static const iw_u8 iw_bit_index[64] = {
	0,  1,	2,  53, 3,  7,	54, 27, 4,  38, 41, 8,	34, 55, 48, 28, 62, 5,	39, 46, 44, 42,
	22, 9,	24, 35, 59, 56, 49, 18, 29, 11, 63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21,
	23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
};
IW_INLINE iw_u32 iw_lowest(iw_u64 x) { return iw_bit_index[((x & -x) * 0x022fdd63cc95386dull) >> 58]; }

#endif
