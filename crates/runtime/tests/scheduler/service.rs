//! The scheduler on its thread.

use crate::support::{OPTIONS, alone, request, tokenizer};
use crate::toy::Toy;
use std::time::{Duration, Instant};
use turbospark_runtime::{Event, Progress, Scheduler, Service, StopReason, Stream};

fn service(unread: usize) -> Service {
    Service::start(Scheduler::new(Toy::new(100, 100, 8, 0), tokenizer(), OPTIONS), unread)
}

fn until_idle(service: &Service) {
    let started = Instant::now();
    while service.status().running + service.status().waiting > 0 || service.status().free_blocks < 100 {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", service.status());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn result(stream: &Stream) -> turbospark_runtime::RawDecodeResult {
    loop {
        match stream.recv() {
            Some(Event::Finished(result)) => return *result,
            Some(Event::Progress(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn many_threads_ask_at_once() {
    let service = service(1000);
    std::thread::scope(|scope| {
        for n in 0..6 {
            let service = &service;
            scope.spawn(move || {
                for m in 0..4 {
                    let asked = request(&format!("prompt {n} {m}"), 20 + n, (n * m) as u64);
                    let stream = service.submit(asked.clone());
                    assert_eq!(result(&stream).ids, alone(&asked).ids);
                    assert!(stream.recv().is_none(), "nothing follows the end");
                }
            });
        }
    });
    until_idle(&service);
    service.shutdown().expect("nothing is saved");
}

#[test]
fn nobody_waits_for_a_slow_reader() {
    let service = service(200);
    let slow = service.submit(request("slow", 3000, 1));
    let quick = service.submit(request("quick", 30, 2));
    let mut heard = 0;
    while !matches!(quick.recv(), Some(Event::Finished(_))) {
        heard += 1;
    }
    assert!(heard >= 30);
    until_idle(&service);
    let mut last = None;
    let mut read = 0;
    while let Some(event) = slow.recv() {
        read += 1;
        last = Some(event);
    }
    let Some(Event::Finished(result)) = last else { panic!("{last:?}") };
    assert_eq!(result.reason, StopReason::SlowConsumer);
    assert!(read <= 202, "{read}");
}

#[test]
fn dropping_and_cancelling_end_a_request() {
    let service = service(100_000);
    let dropped = service.submit(request("dropped", 3000, 1));
    let cancelled = service.submit(request("cancelled", 3000, 1));
    assert!(matches!(dropped.recv(), Some(Event::Progress(Progress::Prefill { .. }))));
    drop(dropped);
    cancelled.cancel();
    assert_eq!(result(&cancelled).reason, StopReason::Cancelled);
    until_idle(&service);
}

#[test]
fn shutting_down_ends_what_runs() {
    let service = service(100_000);
    let streams: Vec<_> = (0..12).map(|n| service.submit(request("long", 3000, n))).collect();
    assert!(streams[0].recv().is_some());
    service.shutdown().expect("nothing is saved");
    for stream in streams {
        let mut last = None;
        while let Some(event) = stream.recv() {
            last = Some(event);
        }
        // Whoever was not taken yet has no event at all.
        match last {
            Some(Event::Finished(result)) => assert_eq!(result.reason, StopReason::Cancelled),
            other => assert!(other.is_none(), "{other:?}"),
        }
    }
}

#[test]
fn what_is_refused_is_told() {
    let service = service(10);
    let stream = service.submit(request("", 5, 1));
    let Some(Event::Failed(error)) = stream.recv() else { panic!("refused") };
    assert!(error.to_string().contains("empty"));
    assert!(stream.recv().is_none());
}
