//! Pages for people on the listener of clients, beside the endpoints.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;

use http::Response;
use http::request::Parts;

use crate::ConnectionFacts;

/// A page, once it is there: HTML or JSON as its header says, or nothing.
pub type PendingPage<'a> = Pin<Box<dyn Future<Output = Response<String>> + Send + 'a>>;

/// Pages on the listener of clients. A path of an endpoint is never asked for here.
pub trait Pages: Send + Sync + fmt::Debug {
    /// Whether there is a page at this path.
    fn serves(&self, path: &str) -> bool;

    /// Answers a request for a path that is served.
    fn answer<'a>(&'a self, request: PageRequest<'a>) -> PendingPage<'a>;
}

/// A request for a page. What may change something is no request of another site's page.
#[derive(Clone, Copy)]
pub struct PageRequest<'a> {
    /// All but its body.
    pub head: &'a Parts,
    /// Its body: a form, or nothing.
    pub form: &'a [u8],
    /// Its connection.
    pub connection: &'a ConnectionFacts,
    /// The address whose share of limits it takes.
    pub client: Option<IpAddr>,
    /// The URL under which clients reach the listener, if it is known.
    pub public_url: Option<&'a str>,
}

impl fmt::Debug for PageRequest<'_> {
    /// Without what may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageRequest")
            .field("method", &self.head.method)
            .finish_non_exhaustive()
    }
}

/// Text for HTML, also within an attribute.
#[must_use]
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
