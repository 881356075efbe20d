//! Ctrl-C: stops what listens for it, ends the program otherwise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

static LISTENING: AtomicBool = AtomicBool::new(false);
static ASKED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The exit code of a program ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Takes over Ctrl-C for the whole program.
pub(crate) fn install() {
    // Without the handler Ctrl-C still ends the program, as the system does it.
    let _ = ctrlc::set_handler(|| {
        let heard = LISTENING.load(Ordering::SeqCst) && !ASKED.swap(true, Ordering::SeqCst);
        if !heard {
            std::process::exit(INTERRUPTED);
        }
    });
}

/// While this lives, the first Ctrl-C only sets a flag; a second one ends the program.
#[derive(Debug)]
pub(crate) struct Listening(());

/// Starts listening.
pub(crate) fn listen() -> Listening {
    ASKED.store(false, Ordering::SeqCst);
    LISTENING.store(true, Ordering::SeqCst);
    Listening(())
}

impl Listening {
    /// Whether Ctrl-C was pressed.
    pub(crate) fn asked(&self) -> bool {
        ASKED.load(Ordering::SeqCst)
    }

    /// The flag itself, for other threads.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&ASKED)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENING.store(false, Ordering::SeqCst);
    }
}
