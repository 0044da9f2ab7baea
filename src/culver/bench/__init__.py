"""Benchmarks: named workloads, the frame that every benchmark reports through, and one module or package each.

`bench_command` declares `culver bench NAME`. `spine`, `matching`, `pipeline`, `streamhub` and `bluedove` are the
benchmarks; `workloads` holds what they measure on.
"""
