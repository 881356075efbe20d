//! The thread pool: every task once, panics, nesting, odd thread counts, and the default count.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use turbospark_cpu::pool::{Limits, Pool, Tiles, default_threads};

/// Names and contents.
type Files<'a> = &'a [(&'a str, &'a str)];

fn count_runs(pool: &Pool, tasks: usize) {
    let runs: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    pool.run(tasks, &|task, worker| {
        assert!(worker < pool.threads());
        runs[task].fetch_add(1, Ordering::Relaxed);
    });
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "each task runs once");
}

#[test]
fn every_task_runs_once() {
    for threads in [0, 1, 2, 3, 64] {
        let pool = Pool::new(threads);
        for tasks in [0, 1, 2, 7, 1000] {
            for _ in 0..20 {
                count_runs(&pool, tasks);
            }
        }
    }
}

#[test]
fn sleeping_workers_are_not_forgotten() {
    let pool = Pool::new(2);
    for pause in 0..100 {
        std::thread::sleep(Duration::from_micros(pause * 10));
        let both = AtomicUsize::new(0);
        let start = Instant::now();
        // Ends only when a second thread has come.
        pool.run(2, &|_, _| {
            both.fetch_add(1, Ordering::SeqCst);
            while both.load(Ordering::SeqCst) < 2 {
                assert!(start.elapsed() < Duration::from_secs(20), "the worker never woke");
                std::thread::yield_now();
            }
        });
    }
}

#[test]
fn panics_reach_the_caller_after_all_tasks() {
    for threads in [1, 2, 5] {
        let pool = Pool::new(threads);
        let done = AtomicUsize::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            pool.run(50, &|task, _| {
                if task % 10 == 3 {
                    std::panic::resume_unwind(Box::new(task));
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }));
        let panic = result.expect_err("a task panicked");
        assert_eq!(panic.downcast_ref::<usize>().map(|task| task % 10), Some(3));
        assert_eq!(done.load(Ordering::Relaxed), 45);
        count_runs(&pool, 10);
    }
}

#[test]
fn nested_and_concurrent_runs_finish() {
    let pool = Pool::new(3);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..50 {
                    pool.run(4, &|_, outer| {
                        pool.run(5, &|_, inner| {
                            assert_eq!(inner, outer, "a nested run stays on its worker");
                            done.fetch_add(1, Ordering::Relaxed);
                        });
                    });
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 3 * 50 * 4 * 5);
}

#[test]
fn d57_many_threads_cost_little_on_few_cores() {
    let time = |threads| {
        let pool = Pool::new(threads);
        let work = |_: usize, _: usize| {
            std::hint::black_box((0..20_000_u64).fold(0, |a, b| std::hint::black_box(a ^ b)));
        };
        let mut times: Vec<Duration> = (0..15)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..40 {
                    pool.run(16, &work);
                }
                start.elapsed()
            })
            .collect();
        times.sort();
        times[7]
    };
    // Another process may take the cores for a while, so the best of a few attempts counts.
    let attempts: Vec<_> = (0..5).map(|_| (time(2), time(64))).collect();
    assert!(attempts.iter().any(|(two, many)| *many < *two * 4), "(2 threads, 64 threads): {attempts:?}");
}

#[test]
fn tiles_cover_the_buffer_once() {
    let pool = Pool::new(2);
    for (rows, width, tile) in [(1, 1, 1), (3, 10, 4), (5, 8, 8), (2, 7, 100), (0, 5, 2), (4, 0, 3)] {
        let mut buffer = vec![0_u32; rows * width];
        pool.run_tiles(Tiles::columns(&mut buffer, rows, width, tile), &|_, mut part| {
            for row in 0..part.rows() {
                let first = part.first_col();
                for (col, value) in part.row_mut(row).iter_mut().enumerate() {
                    *value += (row * width + first + col) as u32 + 1;
                }
            }
        });
        assert_eq!(buffer, (1..=(rows * width) as u32).collect::<Vec<_>>());
        pool.run_tiles(Tiles::rows(&mut buffer, width, tile), &|_, mut part| {
            for row in 0..part.rows() {
                part.row_mut(row).fill(0);
            }
        });
        assert!(buffer.iter().all(|value| *value == 0));
    }
}

#[test]
fn d57_default_count_respects_the_quota() {
    // Files of a cgroup tree, and the whole processors they allow.
    let cases: [(Files<'_>, &str, Option<usize>); 9] = [
        (&[("cpu.max", "765000 100000\n")], "0::/\n", Some(7)),
        (&[("cpu.max", "max 100000\n")], "0::/\n", None),
        (&[("cpu.max", "50000 100000\n")], "0::/\n", Some(1)),
        (&[("cpu/cpu.cfs_quota_us", "-1\n"), ("cpu/cpu.cfs_period_us", "100000\n")], "", None),
        (&[("cpu/cpu.cfs_quota_us", "250000\n"), ("cpu/cpu.cfs_period_us", "100000\n")], "", Some(2)),
        (&[("a/b/cpu.max", "max 100000"), ("a/cpu.max", "300000 100000")], "0::/a/b\n", Some(3)),
        (
            &[("cpu,cpuacct/x/cpu.cfs_quota_us", "100000"), ("cpu,cpuacct/x/cpu.cfs_period_us", "50000")],
            "4:cpu,cpuacct:/x\n",
            Some(2),
        ),
        (&[("cpu.max", "nonsense")], "0::/\n", None),
        (&[], "", None),
    ];
    // Many cores, so that only quota and affinity count.
    let unlimited = limits(&[], "", 64);
    let affinity = default_threads(&unlimited.1);
    for (files, membership, quota) in cases {
        let (_folder, limits) = limits(files, membership, 64);
        let expected = quota.map_or(affinity, |quota| quota.min(affinity));
        assert_eq!(default_threads(&limits), expected, "{files:?} {membership:?}");
    }
}

#[test]
fn d57_default_count_is_physical_cores() {
    let (_folder, limits) = limits(&[], "", 1);
    assert_eq!(default_threads(&limits), 1);
    assert!(default_threads(&Limits::default()) >= 1);
}

/// A fake tree with two hardware threads for each of `cores` cores.
fn limits(files: Files<'_>, membership: &str, cores: usize) -> (tempfile::TempDir, Limits) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |path: std::path::PathBuf, text: &str| {
        std::fs::create_dir_all(path.parent().expect("a file in a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    let limits = Limits {
        cgroups: folder.path().join("cgroup"),
        membership: folder.path().join("membership"),
        processors: folder.path().join("processors"),
    };
    for (file, text) in files {
        write(limits.cgroups.join(file), text);
    }
    write(limits.membership.clone(), membership);
    for cpu in 0..2 * cores {
        let siblings = format!("{},{}\n", cpu % cores, cpu % cores + cores);
        write(limits.processors.join(format!("cpu{cpu}/topology/core_cpus_list")), &siblings);
    }
    (folder, limits)
}
