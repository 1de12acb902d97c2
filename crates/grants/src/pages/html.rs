//! The pages as HTML. They have neither scripts nor styles, and cannot be framed by other pages.

use std::fmt::Write as _;

use fanlight_credentials::escaped_html;
use fanlight_protocol::visible;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use url::Url;

/// `form-action` is left out, since browsers also apply it to redirects after a form: to an
/// authorization server and wherever that redirects. Every foreign text in a page is escaped.
const POLICY: &str = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'";

/// The headers of every answer. Other sites never learn a page's address, which contains a handle.
/// Browsers do send it to this site: with `no-referrer` they would not tell which page a form came
/// from (`Origin: null`).
const HEADERS: [(HeaderName, &str); 4] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    (CACHE_CONTROL, "no-store"),
];

/// A page under construction.
pub(super) struct Page {
    status: StatusCode,
    html: String,
}

/// A form under construction.
pub(super) struct Form<'a> {
    page: &'a mut Page,
}

impl Page {
    pub(super) fn new(title: &str) -> Self {
        let title = escaped(title);
        let html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<h1>{title}</h1>\n"
        );
        Self {
            status: StatusCode::OK,
            html,
        }
    }

    /// A page that explains why something is refused.
    pub(super) fn refusal(status: StatusCode, title: &str, text: &str) -> Self {
        let mut page = Self::new(title);
        page.status = status;
        page.paragraph(text);
        page
    }

    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(super) fn paragraph(&mut self, text: &str) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = writeln!(self.html, "<p>{}</p>", escaped(text));
        self
    }

    pub(super) fn heading(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.html, "<h2>{}</h2>", escaped(text));
        self
    }

    /// A list of names with their values.
    pub(super) fn facts<'a>(
        &mut self,
        facts: impl IntoIterator<Item = (&'a str, String)>,
    ) -> &mut Self {
        self.html += "<dl>\n";
        for (name, value) in facts {
            let _ = writeln!(
                self.html,
                "<dt>{}</dt><dd><code>{}</code></dd>",
                escaped(name),
                escaped(&value)
            );
        }
        self.html += "</dl>\n";
        self
    }

    /// A form that posts to its own page.
    pub(super) fn form(&mut self, token: &str) -> Form<'_> {
        self.html += "<form method=\"post\">\n";
        let mut form = Form { page: self };
        form.hidden("token", token);
        form
    }

    pub(super) fn answer(self) -> Response<String> {
        let Self { status, mut html } = self;
        html += "</html>\n";
        with_headers(status, html, "text/html; charset=utf-8")
    }
}

impl Form<'_> {
    pub(super) fn hidden(&mut self, name: &str, value: &str) -> &mut Self {
        let html = &mut self.page.html;
        let _ = writeln!(
            html,
            "<input type=\"hidden\" name=\"{}\" value=\"{}\">",
            escaped_html(name),
            escaped_html(value)
        );
        self
    }

    /// A field for a secret.
    pub(super) fn secret(&mut self, name: &str, label: &str) -> &mut Self {
        let (name, label) = (escaped(name), escaped(label));
        let html = &mut self.page.html;
        let _ = writeln!(
            html,
            "<p><label>{label}<br><input type=\"password\" name=\"{name}\" size=\"60\" required></label></p>"
        );
        self
    }

    pub(super) fn button(&mut self, action: &str, label: &str) -> &mut Self {
        let (action, label) = (escaped(action), escaped(label));
        let _ = writeln!(
            self.page.html,
            "<button name=\"action\" value=\"{action}\">{label}</button>"
        );
        self
    }

    pub(super) fn end(&mut self) {
        self.page.html += "</form>\n";
    }
}

/// A text for people. A server's scopes or issuer could otherwise look like others.
fn escaped(text: &str) -> String {
    escaped_html(&visible::escaped(text)).into_owned()
}

/// Redirects the browser.
pub(super) fn redirect(to: &Url) -> Response<String> {
    let mut response = with_headers(
        StatusCode::SEE_OTHER,
        String::new(),
        "text/html; charset=utf-8",
    );
    if let Ok(location) = HeaderValue::try_from(to.as_str()) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// A JSON document.
pub(super) fn document(text: String) -> Response<String> {
    with_headers(StatusCode::OK, text, "application/json")
}

/// Adds cookies to the answer.
pub(super) fn with_cookies(
    mut response: Response<String>,
    cookies: Vec<HeaderValue>,
) -> Response<String> {
    for cookie in cookies {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

fn with_headers(status: StatusCode, text: String, kind: &'static str) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
