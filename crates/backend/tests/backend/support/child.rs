//! Scripted servers that the tests start as child processes.

use std::ops::Deref;

use fanlight_backend::TransportSettings;
use fanlight_testkit::scripted::{Backend, Era, Habit, Transport};

/// A scripted server over stdio. Each of its processes has the same replies.
pub(crate) struct Child(Backend);

impl Child {
    pub(crate) async fn legacy() -> Self {
        Self(Backend::start(Era::Legacy, Transport::Stdio).await)
    }

    pub(crate) async fn modern() -> Self {
        Self(Backend::start(Era::Modern, Transport::Stdio).await)
    }

    pub(crate) fn transport(&self) -> TransportSettings {
        self.transport_with(&[])
    }

    pub(crate) fn transport_with(&self, habits: &[Habit]) -> TransportSettings {
        let (command, args) = self.0.command(habits);
        let command = command.to_string_lossy().into_owned();
        TransportSettings::Stdio {
            command,
            args,
            env: Vec::new(),
            cwd: None,
        }
    }

    /// The messages of this method so far.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.0.received(method).len()
    }
}

impl Deref for Child {
    type Target = Backend;

    fn deref(&self) -> &Backend {
        &self.0
    }
}

/// Whether a process exists, even as a zombie.
pub(crate) fn exists(id: u32) -> bool {
    std::path::Path::new(&format!("/proc/{id}")).exists()
}
