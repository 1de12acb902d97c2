//! The pages as text. They have neither scripts nor styles, and no other page may frame them.

use std::fmt::Write as _;

use fanlight_credentials::escaped_html as escaped;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use url::Url;

/// Browsers apply `form-action` to where the answer to a form sends them, too, which is an authorization server and whatever
/// that sends them to: so it is left out. Every text of others in a page is escaped.
const POLICY: &str = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'";

/// What every answer has. No other site learns the address of a page, which has a handle in it; to this one browsers send it,
/// since with `no-referrer` they would not say which page a form is of (`Origin: null`).
const HEADERS: [(HeaderName, &str); 4] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "same-origin"),
    (CACHE_CONTROL, "no-store"),
];

/// A page that is being written.
pub(super) struct Page {
    status: StatusCode,
    html: String,
}

/// A form that is being written.
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

    /// A page that says why something is not done.
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
        // Writing to a string does not fail.
        let _ = writeln!(self.html, "<p>{}</p>", escaped(text));
        self
    }

    pub(super) fn heading(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.html, "<h2>{}</h2>", escaped(text));
        self
    }

    /// A list of names and what there is to say of them.
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

    /// A form that is sent to the page itself.
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
            escaped(name),
            escaped(value)
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

/// Sends a browser on.
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

/// The answer, with cookies.
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
