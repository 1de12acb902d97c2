//! Pages for people, which the clients' listener serves beside the endpoints.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use futures_util::future::BoxFuture;
use http::header::COOKIE;
use http::request::Parts;
use http::{HeaderMap, Response};

use crate::ConnectionFacts;

/// The future of a page: HTML or JSON as its header says, or an empty body.
pub type PendingPage<'a> = BoxFuture<'a, Response<String>>;

/// The pages of the clients' listener. It never asks here for the path of an endpoint.
pub trait Pages: Send + Sync + fmt::Debug {
    /// Whether there is a page at this path.
    fn serves(&self, path: &str) -> bool;

    /// Answers a request for a served path.
    fn answer<'a>(&'a self, request: PageRequest<'a>) -> PendingPage<'a>;
}

/// A request for a page. The listener has rejected cross-site requests that could change something.
#[derive(Clone, Copy)]
pub struct PageRequest<'a> {
    /// The head of the request.
    pub head: &'a Parts,
    /// The body: a form, or nothing.
    pub form: &'a [u8],
    /// The request's connection.
    pub connection: &'a ConnectionFacts,
    /// The address whose share of limits the request uses.
    pub client: Option<IpAddr>,
    /// The URL by which clients reach the listener, if Fanlight knows it.
    pub public_url: Option<&'a str>,
}

/// The values of all cookies of a request with this name.
pub fn cookies<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(COOKIE).iter();
    let texts = texts.filter_map(|value| value.to_str().ok());
    let pairs = texts
        .flat_map(|text| text.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .filter(move |(known, _)| *known == name)
        .map(|(_, value)| value)
}

fanlight_protocol::opaque!(PageRequest<'_>);

/// Escapes text for HTML, including attributes.
pub fn escaped_html(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(
            escaped_html("<a href='x' title=\"&\">"),
            "&lt;a href=&#39;x&#39; title=&quot;&amp;&quot;&gt;"
        );
        assert_eq!(escaped_html("plain"), "plain");
    }
}
