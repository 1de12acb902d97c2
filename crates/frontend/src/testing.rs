//! Resolved listening and notifications for the cores of tests.

use std::sync::Arc;

use fanlight_canonical::{CallContext, Decidable, Interest};
use fanlight_protocol::{Method, Notification};

/// Listening, as a test core resolves it.
#[derive(Debug)]
pub struct TestListen(pub Interest, pub Arc<CallContext>);

impl Decidable for TestListen {
    fn method(&self) -> &Method {
        &Method::Listen
    }

    fn interest(&self) -> Option<&Interest> {
        Some(&self.0)
    }
}

/// A notification without a destination.
#[derive(Debug)]
pub struct TestNotice(pub Notification);

impl Decidable for TestNotice {
    fn method(&self) -> &Method {
        &self.0.method
    }
}
