"""The phase machine: a pure fold over journal events that says how a start is doing.

    startup = fold.Startup(limits)
    for event in journal.events(lines):
        assessment = startup.feed(event)
    assessment = startup.tick(t)    # time passes without an event

No input or output and no clock: time is the events' `t`. Whatever an event holds, nothing is
raised; absent evidence is unknown, not negative. Fields read, by kind (all but `t` and `kind`
may be absent; `injected` and `verdict` events are not looked at):

launch   engine (anything but "sglang": nothing is judged), argv, port, model, served_name,
         tensor_parallel, drafter {path, algorithm}, min_accept_length,
         weights_bytes {target, drafter}, history {phase: seconds of the last good start}
log      data
http     path, status, error, seconds; models (ids, of /v1/models); clients (connections to the
         port that are not ours)
gpu      gpus: memory_used_mib, memory_total_mib, utilization_pct, ours_mib (our processes' share)
process  processes: pid, name, state, cpu_s, read_bytes, exit_code (of a zombie), ppid, start (clock
         ticks since boot); frozen (the cgroup is), oom_kills (a counter since the launch: v2
         memory.events oom_kill, v1 memory.oom_control oom_kill)
socket   port, owner_pid, ours, owner (another one: its name, pid and unit)
generate status, seconds, text_ok, accept_length, accept_source, model, models, speculative (the algorithm that
         runs, "" for none), speculative_faults, tokens_per_s, error, fault, min_accept_length;
         warm {mode, seconds, limit_s, paths: [{name, first_s, again_s, fault, skipped}]};
         acceptance {fault, worse, unsure (lists of sentences), compared_with, fail, answers {said}}
warm     path (that the proof walks now, in words), number, of
cache    grown (names of the compile caches that have grown since the last look)
exit     returncode, oom, oom_kills, shm_full, xid
file     path (the log calls it missing), damage (the model's folder has a file that is not whole: which, and why), readable (false: it is there and closed to the engine's user), why
step     step: "stop" means that we end it on purpose

The watch writes what the fold says as a `verdict` event, for all who only want to know (summary.Summary):

verdict  phase, outcome, cause, progress, detail, eta_s, eta_error_s, eta_until, evidence, stopped_by; phases (seconds in
         each up to now, `serving` left out), served_after_s
"""
