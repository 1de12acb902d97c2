//! Waiting for the end of a task.

mod extension;
mod inputs;
mod pace;
mod requested;

pub(super) use extension::ExtensionWait;
pub(super) use pace::milliseconds;
pub(super) use requested::RequestedWait;
