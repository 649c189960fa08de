// SPDX-License-Identifier: Apache-2.0
// The generated skeleton of packet.bpf.c, after the types that its variables have.
#pragma once

#include "inferwire/event_abi.h"

#include "packet.skel.h"
