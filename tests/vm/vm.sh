#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ./run test --vm: the kernel tests on other kernels, in guests without any virtualisation of the hardware (TCG).
#
#   vm.sh --build DIR [--kernel 6.1,6.12] [--only TEST,...] [--repetitions N] [--timeout SECONDS]
exec /usr/bin/python3 "$(dirname "$0")/vm.py" "$@"
