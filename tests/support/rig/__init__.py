# SPDX-License-Identifier: Apache-2.0
"""Rigs for the end-to-end tests: namespaces, the wire, servers, clients and the agent, each with its own log.

Runs on Debian's /usr/bin/python3 with the standard library; servers and clients are processes of their own.
"""
