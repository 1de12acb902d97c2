//! What is logged on this thread.

use std::io;
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::MakeWriter;

/// The log from its making to its end.
pub(crate) struct Log {
    text: Text,
    _default: tracing::subscriber::DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Catches what the current thread logs.
    pub(crate) fn catch() -> Self {
        let text = Text::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(text.clone())
            .finish();
        Self { text, _default: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap()
    }
}

impl<'a> MakeWriter<'a> for Text {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl io::Write for Text {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
