//! Subscribes at a server on behalf of its listeners.
//!
//! [`crate::subscriptions`] has the listeners and their interests. Here, one [`ListeningWorker`]
//! per connection subscribes at the server. A modern server gets one `subscriptions/listen` for all
//! listeners; a legacy one gets the stream of a GET and `resources/subscribe`.

mod legacy;
mod modern;
mod worker;

pub(crate) use legacy::{Notifies, local_answer, record, refusal};
pub(crate) use modern::SharedSubscription;
pub(crate) use worker::{ListeningWorker, connected, stopped};
