;; What stands in for WASI preview 1 in a policy that `kproxide policy pack` makes of a core module.
;;
;; A policy is a pure function, so this offers nothing of the world outside: no arguments, no environment, no files, no
;; network. The clock begins at 0 and moves only when it is asked or slept on; random bytes are the same in every call.
;; What is written to standard output and standard error becomes lines of the policy's log. Leaving the process is a trap.
;;
;; wit-component drops the functions that a module does not import.
(module
  (import "env" "memory" (memory 0))
  ;; Level (0 debug, 1 info, 2 warn, 3 error), then the message.
  (import "kproxide:policy/log@0.1.0" "log" (func $log (param i32 i32 i32)))

  ;; Nanoseconds. A loop that waits for a later time sees one.
  (global $clock (mut i64) (i64.const 0))
  (global $random (mut i64) (i64.const 0x9e3779b97f4a7c15))

  ;; Errors as WASI numbers them.
  (global $badf i32 (i32.const 8))
  (global $nosys i32 (i32.const 52))
  (global $spipe i32 (i32.const 70))

  ;; Two lengths of 0: none of them.
  (func $none (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (i32.const 0))
  (export "args_sizes_get" (func $none))
  (export "environ_sizes_get" (func $none))
  (func $no_list (param i32 i32) (result i32) (i32.const 0))
  (export "args_get" (func $no_list))
  (export "environ_get" (func $no_list))

  (func (export "clock_res_get") (param $id i32) (param $out i32) (result i32)
    (i64.store (local.get $out) (i64.const 1000))
    (i32.const 0))
  (func (export "clock_time_get") (param $id i32) (param $precision i64) (param $out i32) (result i32)
    (global.set $clock (i64.add (global.get $clock) (i64.const 1000)))
    (i64.store (local.get $out) (global.get $clock))
    (i32.const 0))
  ;; Sleeping moves the clock. Waiting for anything else is not offered.
  (func (export "poll_oneoff") (param $in i32) (param $out i32) (param $count i32) (param $events i32) (result i32)
    (local $until i64)
    (if (i32.eqz (local.get $count)) (then (return (global.get $nosys))))
    (if (i32.load8_u offset=8 (local.get $in)) (then (return (global.get $nosys))))
    (local.set $until (i64.load offset=24 (local.get $in)))
    (if (i32.eqz (i32.and (i32.load16_u offset=40 (local.get $in)) (i32.const 1)))
      (then (local.set $until (i64.add (global.get $clock) (local.get $until)))))
    (if (i64.gt_u (local.get $until) (global.get $clock)) (then (global.set $clock (local.get $until))))
    ;; One event, of a clock, without error.
    (memory.fill (local.get $out) (i32.const 0) (i32.const 32))
    (i64.store (local.get $out) (i64.load (local.get $in)))
    (i32.store (local.get $events) (i32.const 1))
    (i32.const 0))
  (func (export "sched_yield") (result i32) (i32.const 0))

  ;; xorshift64, one step for each byte.
  (func (export "random_get") (param $at i32) (param $length i32) (result i32)
    (local $state i64)
    (local.set $state (global.get $random))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $length)))
        (local.set $state (i64.xor (local.get $state) (i64.shl (local.get $state) (i64.const 13))))
        (local.set $state (i64.xor (local.get $state) (i64.shr_u (local.get $state) (i64.const 7))))
        (local.set $state (i64.xor (local.get $state) (i64.shl (local.get $state) (i64.const 17))))
        (i32.store8 (local.get $at) (i32.wrap_i64 (i64.shr_u (local.get $state) (i64.const 56))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (local.set $length (i32.sub (local.get $length) (i32.const 1)))
        (br $next)))
    (global.set $random (local.get $state))
    (i32.const 0))

  ;; One line of the log for each piece: standard error as error, all else as info. The end of the line is left out.
  (func (export "fd_write") (param $fd i32) (param $pieces i32) (param $count i32) (param $written i32) (result i32)
    (local $at i32) (local $length i32) (local $sum i32)
    (if (i32.gt_u (local.get $fd) (i32.const 2)) (then (return (global.get $badf))))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $at (i32.load (local.get $pieces)))
        (local.set $length (i32.load offset=4 (local.get $pieces)))
        (local.set $sum (i32.add (local.get $sum) (local.get $length)))
        (block $trimmed
          (loop $trim
            (br_if $trimmed (i32.eqz (local.get $length)))
            (br_if $trimmed (i32.gt_u
              (i32.load8_u (i32.sub (i32.add (local.get $at) (local.get $length)) (i32.const 1)))
              (i32.const 32)))
            (local.set $length (i32.sub (local.get $length) (i32.const 1)))
            (br $trim)))
        (if (local.get $length)
          (then
            (call $log
              (select (i32.const 3) (i32.const 1) (i32.eq (local.get $fd) (i32.const 2)))
              (local.get $at) (local.get $length))))
        (local.set $pieces (i32.add (local.get $pieces) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $written) (local.get $sum))
    (i32.const 0))
  ;; The three that every process has: of type character device, with all rights.
  (func (export "fd_fdstat_get") (param $fd i32) (param $out i32) (result i32)
    (if (i32.gt_u (local.get $fd) (i32.const 2)) (then (return (global.get $badf))))
    (i64.store (local.get $out) (i64.const 2))
    (i64.store offset=8 (local.get $out) (i64.const -1))
    (i64.store offset=16 (local.get $out) (i64.const -1))
    (i32.const 0))
  ;; Standard input is empty.
  (func (export "fd_read") (param $fd i32) (param i32 i32) (param $read i32) (result i32)
    (if (local.get $fd) (then (return (global.get $badf))))
    (i32.store (local.get $read) (i32.const 0))
    (i32.const 0))
  (func (export "fd_close") (param i32) (result i32) (i32.const 0))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (i32.const 0))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (global.get $spipe))
  (func (export "fd_tell") (param i32 i32) (result i32) (global.get $spipe))
  ;; No folder is open from the start.
  (func (export "fd_prestat_get") (param i32 i32) (result i32) (global.get $badf))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (global.get $badf))

  (func (export "proc_exit") (param i32) (unreachable))
  (func (export "proc_raise") (param i32) (result i32) (unreachable))

  ;; Files and sockets: there are none.
  (func (export "fd_advise") (param i32 i64 i64 i32) (result i32) (global.get $nosys))
  (func (export "fd_allocate") (param i32 i64 i64) (result i32) (global.get $nosys))
  (func (export "fd_datasync") (param i32) (result i32) (global.get $nosys))
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32) (global.get $nosys))
  (func (export "fd_filestat_get") (param i32 i32) (result i32) (global.get $nosys))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (global.get $nosys))
  (func (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32) (global.get $nosys))
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) (global.get $nosys))
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) (global.get $nosys))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) (global.get $nosys))
  (func (export "fd_renumber") (param i32 i32) (result i32) (global.get $nosys))
  (func (export "fd_sync") (param i32) (result i32) (global.get $nosys))
  (func (export "path_create_directory") (param i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (global.get $nosys))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "sock_accept") (param i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "sock_recv") (param i32 i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "sock_send") (param i32 i32 i32 i32 i32) (result i32) (global.get $nosys))
  (func (export "sock_shutdown") (param i32 i32) (result i32) (global.get $nosys)))
