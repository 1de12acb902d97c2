//! The page on which users see where they are signed in, and sign out.

use http::{Response, StatusCode};

use super::browser::User;
use super::html::{Page, redirect, with_cookies};
use super::{CONNECTIONS, Visit, denied};
use crate::connection::{UserConnection, connections};
use crate::links::{CONNECT, below};
use crate::store::Owner;

impl Visit<'_> {
    /// Shows the connections of the user, or asks who that is.
    pub(super) async fn show_connections(&self) -> Response<String> {
        self.page_of_connections(None).await
    }

    /// Does what the user wants with one of them.
    pub(super) async fn change_connections(&self) -> Response<String> {
        let fields = self.fields();
        let token = fields.get("token").unwrap_or_default();
        if !self.browser.has_been_shown(&self.pages.seal, CONNECTIONS, b"", token) {
            let text = "The form was not shown in this browser. Open the page again.";
            return Page::refusal(StatusCode::FORBIDDEN, "Nothing has been done", text).answer();
        }
        let user = match self.user(fields.get("credential")).await {
            Ok(user) => user,
            Err(denial) => return denied(&denial).answer(),
        };
        let server = fields.get("server").filter(|name| self.pages.grants.server(name).is_some());
        let owner = server.map(|server| Owner::new(&user.principal, server));
        match (fields.get("action"), owner) {
            (Some("connect"), Some(owner)) if !user.may_sign_in(owner.server()) => {
                super::barred(owner.server()).answer()
            }
            (Some("connect"), Some(owner)) => self.connect(&owner, &user),
            (Some("sign-out"), Some(owner)) => {
                let answer = match self.pages.grants.sign_out(&owner).await {
                    Ok(()) => self.page_of_connections(Some(&user)).await,
                    Err(error) => super::not_signed_in(&crate::sign_in::unkept(&error)).answer(),
                };
                with_cookies(answer, self.browser.set(&self.pages.seal, Some(&user)))
            }
            _ => self.page_of_connections(Some(&user)).await,
        }
    }

    /// Leads to the page on which a user connects.
    fn connect(&self, owner: &Owner, user: &User) -> Response<String> {
        let handle = self.pages.links.handle(owner, None);
        let url = handle.and_then(|handle| below(self.public_url, &format!("{CONNECT}{handle}")));
        let answer = url.map(|url| redirect(&url));
        let answer = answer.unwrap_or_else(|| Page::refusal(StatusCode::BAD_GATEWAY, "Try again later", "").answer());
        with_cookies(answer, self.browser.set(&self.pages.seal, Some(user)))
    }

    async fn user(&self, credential: Option<&str>) -> Result<User, fanlight_credentials::Denial> {
        self.browser.user(self.pages, credential).await
    }

    async fn page_of_connections(&self, shown: Option<&User>) -> Response<String> {
        let user = match shown {
            Some(user) => Ok(user.clone()),
            None => self.user(None).await,
        };
        let token = self.browser.form_token(&self.pages.seal, CONNECTIONS, b"").unwrap_or_default();
        let page = match &user {
            Ok(user) => match connections(&self.pages.grants, &user.principal).await {
                Ok(all) => page_of(user, &all, &token),
                Err(error) => super::not_signed_in(&crate::sign_in::unkept(&error)),
            },
            Err(denial) => {
                let mut page = denied(denial);
                let mut form = page.form(&token);
                form.secret("credential", "Your key or access token for this gateway");
                form.button("show", "Show my connections").end();
                page.with_status(StatusCode::OK)
            }
        };
        let cookies = self.browser.set(&self.pages.seal, user.as_ref().ok());
        with_cookies(page.answer(), cookies)
    }
}

fn page_of(user: &User, all: &[UserConnection], token: &str) -> Page {
    let mut page = Page::new("Your connections");
    page.paragraph(&format!("You are known to this gateway as {}.", user.name));
    // Who may not connect to a server, and never has, is not told of it.
    let shown = all.iter().map(|one| (one, user.may_sign_in(&one.server)));
    for (connection, may_connect) in shown.filter(|(one, may_connect)| *may_connect || one.is_connected()) {
        page.heading(&connection.server).facts(connection.facts());
        let mut form = page.form(token);
        form.hidden("server", &connection.server);
        if may_connect {
            form.button("connect", if connection.is_connected() { "Connect anew" } else { "Connect" });
        }
        if connection.is_connected() {
            form.button("sign-out", "Disconnect");
        }
        form.end();
    }
    page
}
