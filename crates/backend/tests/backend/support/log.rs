//! What is logged on this thread.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use tracing_subscriber::fmt::MakeWriter;

/// The log from its making to its end.
pub(crate) struct Log(());

thread_local! {
    static CAUGHT: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Sets the subscriber of the process, which writes for each thread what that catches.
///
/// It is set before anything under test runs: `tracing` keeps for each place in the code whether anyone wants what is
/// logged there. With a subscriber for some threads only, another thread that comes to a place first could have it
/// noted as wanted by none.
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
    /// Catches what the current thread logs.
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
                .for_each(|caught| caught.extend_from_slice(text))
        });
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_another_thread_logs_first_is_caught() {
    let say = || tracing::warn!("said on two threads");
    let log = Log::catch();
    std::thread::spawn(say).join().unwrap();
    assert_eq!(log.text(), "");
    say();
    assert_eq!(log.text().matches("said on two threads").count(), 1);
}
