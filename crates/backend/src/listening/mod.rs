//! Subscribes at a server on behalf of its listeners.
//!
//! [`crate::subscriptions`] has the listeners and their interests. Here, one [`ListeningWorker`]
//! per connection subscribes at the server. A modern server gets one `subscriptions/listen` for all
//! listeners; a legacy one gets the stream of a GET and `resources/subscribe`.

mod calls;
mod capabilities;
mod legacy;
mod modern;
mod resources;
mod subscription;
mod worker;

pub(crate) use calls::{local_answer, record, refusal};
pub(crate) use capabilities::Notifies;
pub(crate) use modern::SharedSubscription;
pub(crate) use worker::{ListeningWorker, connected, stopped};
