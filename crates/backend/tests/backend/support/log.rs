//! Captures the log of a thread.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use tracing_subscriber::fmt::MakeWriter;

/// The log since this was created.
pub(crate) struct Log(());

thread_local! {
    static CAUGHT: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Sets the process's subscriber, which captures the log separately for each thread.
///
/// It is set before any tested code runs: `tracing` remembers for each place in the code whether
/// anyone wants its events. With a subscriber for some threads only, another thread that comes
/// first could mark a place as unwanted.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false);
        tracing::subscriber::set_global_default(subscriber.with_writer(Caught).finish()).unwrap();
    });
}

impl Log {
    /// Captures the log of the current thread.
    pub(crate) fn catch() -> Self {
        install();
        CAUGHT.set(Some(Vec::new()));
        Self(())
    }

    pub(crate) fn text(&self) -> String {
        CAUGHT.with_borrow(|caught| String::from_utf8(caught.clone().unwrap()).unwrap())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        CAUGHT.set(None);
    }
}

struct Caught;

impl<'a> MakeWriter<'a> for Caught {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl io::Write for Caught {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        CAUGHT.with_borrow_mut(|caught| {
            caught
                .iter_mut()
                .for_each(|caught| caught.extend_from_slice(text));
        });
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn event_that_another_thread_logs_first_is_caught() {
    let say = || tracing::warn!("said on two threads");
    let log = Log::catch();
    std::thread::spawn(say).join().unwrap();
    assert_eq!(log.text(), "");
    say();
    assert_eq!(log.text().matches("said on two threads").count(), 1);
}
