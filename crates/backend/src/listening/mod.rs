//! Keeping up at a server what its listeners want to hear.
//!
//! [`crate::hub`] holds who listens to what. Here one [`Keeper`] per line brings the server to
//! send it: a modern server by one `subscriptions/listen` for all, a legacy one by the stream of a
//! GET and by `resources/subscribe`.
//!
//! Must not know: the core, or how connections are made.

mod calls;
mod declares;
mod dedicated;
mod keeper;
mod legacy;
mod listen;
mod modern;
mod questions;
mod subscription;

pub(crate) use calls::{local_answer, refusal, remember};
pub(crate) use keeper::Keeper;
pub(crate) use listen::Listeners;
