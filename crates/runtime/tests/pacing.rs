//! Pacing on a clock and sensors of the test's own.

use foundation::TokenId;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use turbospark_runtime::{
    Clock, Engine, GenerationConfig, LinuxSensors, MemoryPressure, OpenOptions, Pace, Pacer, PowerProfile, Sensors,
    Thermal,
};

#[derive(Clone, Default)]
struct Time(Rc<Cell<Duration>>);

impl Clock for Time {
    fn now(&self) -> Duration {
        self.0.get()
    }

    fn sleep(&mut self, time: Duration) {
        self.0.set(self.0.get() + time);
    }
}

/// Readings, and how often they were taken.
#[derive(Default)]
struct Readings {
    memory: Option<MemoryPressure>,
    taken: usize,
}

#[derive(Clone, Default)]
struct Dials(Rc<RefCell<Readings>>);

impl Sensors for Dials {
    fn thermal(&self) -> Option<Thermal> {
        None
    }

    fn memory(&self) -> Option<MemoryPressure> {
        self.0.borrow_mut().taken += 1;
        self.0.borrow().memory
    }
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn deadlines_are_absolute() {
    let time = Time::default();
    let mut pacer = Pacer::new(Pace { rate: Some(10.0), ..Pace::default() }, time.clone(), Dials::default());
    // Work takes 30 ms a token, but for one that takes 250: those after it catch up.
    for n in 1..=20 {
        time.0.set(time.now() + millis(if n == 7 { 250 } else { 30 }));
        pacer.token(&|| false);
        let late = [(7, 850), (8, 880), (9, 910)].into_iter().find(|(late, _)| *late == n);
        let expected = millis(late.map_or(100 * n, |(_, at)| at));
        assert_eq!(time.now(), expected, "token {n}");
    }
}

#[test]
fn the_ladders_step_and_a_rate_overrides_them() {
    use MemoryPressure::{Normal, Warning};
    use PowerProfile::{Balanced, Efficiency, Performance};
    use Thermal::{Critical, Fair, Nominal, Serious};
    let of = |profile| Pace { rate: None, profile };
    let cases = [
        (of(Performance), Some(Critical), Some(MemoryPressure::Critical), None),
        (of(Balanced), None, None, None),
        (of(Balanced), Some(Nominal), Some(Normal), None),
        (of(Balanced), Some(Fair), Some(Normal), None),
        (of(Balanced), Some(Serious), Some(Normal), Some(10.0)),
        (of(Balanced), Some(Critical), Some(Warning), Some(5.0)),
        (of(Balanced), None, Some(Warning), Some(10.0)),
        (of(Balanced), Some(Serious), Some(MemoryPressure::Critical), Some(5.0)),
        (of(Efficiency), None, None, Some(10.0)),
        (of(Efficiency), Some(Critical), None, Some(5.0)),
        (Pace { rate: Some(50.0), profile: Efficiency }, Some(Critical), None, Some(50.0)),
        (Pace { rate: Some(0.0), profile: Efficiency }, None, None, None),
    ];
    for (pace, thermal, memory, expected) in cases {
        assert_eq!(pace.rate(thermal, memory), expected, "{pace:?} {thermal:?} {memory:?}");
    }
}

#[test]
fn sensors_are_read_every_sixteen_tokens_and_the_worst_is_kept() {
    let (time, dials) = (Time::default(), Dials::default());
    let mut pacer = Pacer::new(Pace { rate: None, profile: PowerProfile::Balanced }, time.clone(), dials.clone());
    (0..15).for_each(|_| pacer.token(&|| false));
    assert_eq!((dials.0.borrow().taken, time.now(), pacer.peak_memory_pressure()), (1, millis(0), None));
    dials.0.borrow_mut().memory = Some(MemoryPressure::Critical);
    (0..17).for_each(|_| pacer.token(&|| false));
    // Anchored anew at the sixteenth: sixteen tokens at five a second.
    assert_eq!((dials.0.borrow().taken, time.now()), (3, millis(3200)));
    dials.0.borrow_mut().memory = Some(MemoryPressure::Normal);
    (0..40).for_each(|_| pacer.token(&|| false));
    assert_eq!(pacer.peak_memory_pressure(), Some(MemoryPressure::Critical));
    let at = time.now();
    (0..40).for_each(|_| pacer.token(&|| false));
    assert_eq!(time.now(), at, "relieved");
}

#[test]
fn waiting_ends_when_cancelled() {
    let time = Time::default();
    let mut pacer = Pacer::new(Pace { rate: Some(1e-300), ..Pace::default() }, time.clone(), Dials::default());
    pacer.token(&|| time.now() >= millis(120));
    assert_eq!(time.now(), millis(150));
}

#[test]
fn linux_says_what_its_files_say() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let sensors = LinuxSensors { pressure: vec![at("absent"), at("memory")], thermal: at("thermal") };
    assert_eq!((sensors.thermal(), sensors.memory()), (None, None));
    for (some, full, expected) in [
        ("0.00", "0.00", MemoryPressure::Normal),
        ("12.50", "3.00", MemoryPressure::Warning),
        ("80.00", "44.00", MemoryPressure::Critical),
    ] {
        let text = format!("some avg10={some} avg60=0.00 avg300=0.00 total=1\nfull avg10={full} avg60=0.00 total=1\n");
        std::fs::write(at("memory"), text).expect("written");
        assert_eq!(sensors.memory(), Some(expected));
    }
    let zone = at("thermal/thermal_zone0");
    std::fs::create_dir_all(&zone).expect("made");
    let write = |name: &str, text: &str| std::fs::write(zone.join(name), text).expect("written");
    write("temp", "40000\n");
    assert_eq!(sensors.thermal(), None, "no trip point says what is hot");
    for (n, kind, temp) in [(0, "passive", "80000"), (1, "critical", "100000")] {
        write(&format!("trip_point_{n}_type"), kind);
        write(&format!("trip_point_{n}_temp"), temp);
    }
    for (temp, level) in [(40, Thermal::Nominal), (76, Thermal::Fair), (81, Thermal::Serious), (96, Thermal::Critical)]
    {
        write("temp", &format!("{temp}000\n"));
        assert_eq!(sensors.thermal(), Some(level));
    }
}

#[test]
fn pacing_changes_no_token_and_is_kept() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("answer.json");
    std::fs::write(&file, r#"{"text": "an answer of some length"}"#).expect("written");
    let name = format!("scripted:{}", file.display());
    let mut engine = Engine::open(&name, &OpenOptions::default()).expect("opens");
    let prompt: Vec<TokenId> = "hi".bytes().map(|b| TokenId(b.into())).collect();
    let mut run = |pace| {
        let config = GenerationConfig { pace, ..GenerationConfig::default() };
        engine.producer().reset();
        let started = std::time::Instant::now();
        (engine.generate(&prompt, &config, &|| false, &mut |_| {}).expect("runs"), started.elapsed())
    };
    let (free, _) = run(Pace::default());
    let (paced, took) = run(Pace { rate: Some(200.0), ..Pace::default() });
    assert_eq!((&paced.ids, &paced.text, paced.reason), (&free.ids, &free.text, free.reason));
    assert!(took >= millis(5 * 24), "{took:?}");
}
