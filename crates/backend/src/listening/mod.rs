//! Subscribes at a server to what its listeners want.
//!
//! [`crate::subscriptions`] holds who listens to what. Here one [`ListeningWorker`] per connection
//! makes the server send it: a modern server by one `subscriptions/listen` for all listeners, a
//! legacy one by the stream of a GET and by `resources/subscribe`.

mod calls;
mod capabilities;
mod dedicated;
mod legacy;
mod listeners;
mod modern;
mod resources;
mod server_requests;
mod subscription;
mod worker;

pub(crate) use calls::{local_answer, record, refusal};
pub(crate) use listeners::Listeners;
pub(crate) use worker::ListeningWorker;
