//! The routes of the listener, each declared with its access requirements.

use std::sync::Arc;

use axum::handler::Handler;
use axum::routing::{MethodRouter, get, post};

use crate::{Admin, Needs, Refusal};

/// A route: its path, its access requirements, and its handlers.
pub(crate) struct Route(
    pub(crate) &'static str,
    pub(crate) Needs,
    pub(crate) MethodRouter<Arc<Admin>>,
);

/// A route that allows only `GET` and `HEAD`.
pub(crate) fn read<H: Handler<T, Arc<Admin>>, T: 'static>(handler: H) -> MethodRouter<Arc<Admin>> {
    get(handler).fallback(async || Refusal::method("GET, HEAD"))
}

/// A route that allows only `POST`.
pub(crate) fn change<H: Handler<T, Arc<Admin>>, T: 'static>(
    handler: H,
) -> MethodRouter<Arc<Admin>> {
    post(handler).fallback(async || Refusal::method("POST"))
}
