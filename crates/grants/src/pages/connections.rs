//! The page on which users see where they are signed in, and sign out.

use std::sync::Arc;

use fanlight_canonical::identity::Identity;
use fanlight_credentials::Denial;
use http::{Response, StatusCode};

use super::connect::IDENTIFY;
use super::html::{Page, redirect};
use super::{CONNECTIONS, Visit, answer_or_page, denied};
use crate::links::{CONNECT, join_path};
use crate::{Owner, SignInError, UserConnection, connections};

impl Visit<'_> {
    /// Shows the user's connections, or asks who the user is.
    pub(super) async fn show_connections(&self) -> Response<String> {
        self.page_of_connections(self.user(None).await).await
    }

    /// Changes one of the connections as the user wants.
    pub(super) async fn change_connections(&self) -> Response<String> {
        let fields = self.fields();
        let token = fields.get("token").unwrap_or_default();
        if !self
            .browser
            .has_been_shown(&self.pages.seal, CONNECTIONS, b"", token)
        {
            let text = "This form comes from another browser. Open the page again.";
            return Page::refusal(StatusCode::FORBIDDEN, "Nothing has been done", text).answer();
        }
        if let Some(issuer) = fields
            .get("issuer")
            .filter(|_| fields.get("action") == Some(IDENTIFY))
        {
            return answer_or_page(self.begin_identifying(issuer, CONNECTIONS, None).await);
        }
        let user = match self.user(fields.get("credential")).await {
            Ok(user) => user,
            Err(denial) => return denied(&denial).answer(),
        };
        let server = fields
            .get("server")
            .filter(|name| self.pages.grants.server(name).is_some());
        let owner = server.map(|server| Owner::new(&user.principal.to_bytes(), server));
        match (fields.get("action"), owner) {
            (Some("connect"), Some(owner)) if self.may_sign_in(&user, owner.server()) => {
                self.connect(&owner)
            }
            // A server that the user may not use is as one that does not exist.
            (Some("connect"), Some(owner)) => {
                let grants = &self.pages.grants;
                grants.not_signed_in(&owner, &SignInError::NotPermitted);
                self.page_of_connections(Ok(user)).await
            }
            (Some("sign-out"), Some(owner)) => {
                match self
                    .pages
                    .grants
                    .sign_out(&self.pages.grants.record_owner(&owner))
                    .await
                {
                    Ok(()) => self.page_of_connections(Ok(user)).await,
                    Err(error) => super::not_signed_in(&error.into()).answer(),
                }
            }
            _ => self.page_of_connections(Ok(user)).await,
        }
    }

    /// Redirects to the page on which the user connects.
    fn connect(&self, owner: &Owner) -> Response<String> {
        let handle = self.pages.links.handle(owner, None);
        let url =
            handle.and_then(|handle| join_path(self.public_url, &format!("{CONNECT}{handle}")));
        let answer = url.map(|url| redirect(&url));
        answer.unwrap_or_else(|| {
            Page::refusal(StatusCode::BAD_GATEWAY, "Try again later", "").answer()
        })
    }

    async fn page_of_connections(&self, user: Result<Arc<Identity>, Denial>) -> Response<String> {
        let token = self
            .browser
            .form_token(&self.pages.seal, CONNECTIONS, b"")
            .unwrap_or_default();
        let page = match &user {
            Ok(user) => match connections(&self.pages.grants, &user.principal.to_bytes()).await {
                Ok(all) => self.page_of(user, &all, &token),
                Err(error) => super::not_signed_in(&error.into()),
            },
            Err(denial) => self.page_for_anybody(denial, &token),
        };
        page.answer()
    }

    /// The page for an unidentified user, with the ways to identify themselves.
    fn page_for_anybody(&self, denial: &Denial, token: &str) -> Page {
        let mut page = denied(denial).with_status(StatusCode::OK);
        for issuer in self.pages.grants.identity_providers() {
            let mut form = page.form(token);
            form.hidden("issuer", &issuer)
                .button(IDENTIFY, &format!("Sign in at {issuer}"))
                .end();
        }
        if self.pages.grants.takes_credentials() {
            let mut form = page.form(token);
            form.secret("credential", "Your key or access token for this gateway");
            form.button("show", "Show my connections").end();
        }
        page
    }

    fn page_of(&self, user: &Arc<Identity>, all: &[UserConnection], token: &str) -> Page {
        let mut page = Page::new("Your connections");
        page.paragraph(&format!("This gateway knows you as {}.", user.name));
        // Hide servers to which the user may not connect, unless they are connected.
        let shown = all
            .iter()
            .map(|one| (one, self.may_sign_in(user, &one.server)));
        for (connection, may_connect) in
            shown.filter(|(one, may_connect)| *may_connect || one.is_kept())
        {
            page.heading(&connection.server).facts(connection.facts());
            let mut form = page.form(token);
            form.hidden("server", &connection.server);
            if may_connect {
                form.button(
                    "connect",
                    if connection.is_kept() {
                        "Connect again"
                    } else {
                        "Connect"
                    },
                );
            }
            if connection.is_kept() {
                form.button("sign-out", "Disconnect");
            }
            form.end();
        }
        page
    }
}
