//! The values in the configuration that no recording contains.

use fanlight_config::{Argument, Config, Secret, Server, ServerAuth, Transport};
use fanlight_protocol::secret::{is_secret, is_secret_option, without_secrets};
use url::Url;

/// The shortest segment of a URL's path that may be a key.
const KEY: usize = 16;

/// All configured values that may be secret, or that only the configuration knows: variables and
/// headers of servers, credentials, keys in URLs and on command lines, and fixed arguments.
pub fn configured_values(config: &Config) -> Vec<String> {
    let mut values = Values::default();
    config
        .servers
        .iter()
        .for_each(|server| values.add_server(server));
    values.extend(config.admin.token.iter());
    for hook in &config.hooks {
        values.add_url(hook.url.expose());
        values.extend(hook.headers.iter().map(|(_, value)| value));
    }
    for notify in &config.notify {
        values.add_url(notify.url.expose());
        values.extend(notify.secret.iter());
    }
    for issuer in config.auth.methods().iter().flat_map(|auth| &auth.oauth) {
        let introspection = issuer.introspection.iter();
        values.extend(introspection.filter_map(|one| one.client_secret.as_ref()));
        values.extend(
            issuer
                .sign_in
                .iter()
                .filter_map(|one| one.client_secret.as_ref()),
        );
    }
    let valkey = config
        .replicas
        .iter()
        .filter_map(|replicas| replicas.valkey.as_ref());
    values.extend(valkey.filter_map(|valkey| valkey.password.as_ref()));
    values.0
}

/// The values in the configuration of one server.
pub fn values_of(server: &Server) -> Vec<String> {
    let mut values = Values::default();
    values.add_server(server);
    values.0
}

#[derive(Default)]
struct Values(Vec<String>);

impl Values {
    fn add_server(&mut self, server: &Server) {
        match &server.transport {
            Transport::Stdio { args, env, .. } => {
                self.extend(env.iter().map(|(_, value)| value));
                self.add_arguments(args);
            }
            Transport::Http { headers, .. } | Transport::Sse { headers, .. } => {
                self.extend(headers.iter().map(|(_, value)| value));
            }
            Transport::Incomplete { .. } => {}
        }
        server.urls().for_each(|url| self.add_url(url));
        if let Some(auth) = &server.auth {
            self.add_auth(auth);
        }
        for (_, argument) in server.arguments.iter().flat_map(|(_, arguments)| arguments) {
            if let Argument::Value(value) = argument {
                self.extend([value]);
            }
        }
    }

    fn add_auth(&mut self, auth: &ServerAuth) {
        let own = [&auth.password, &auth.client_secret, &auth.key];
        self.extend(own.into_iter().flatten());
        if let (Some(user), Some(password)) = (&auth.username, &auth.password) {
            self.0.push(format!("{user}:{}", password.expose()));
        }
        self.extend(auth.idp.iter().filter_map(|idp| idp.client_secret.as_ref()));
    }

    /// Adds what has the form of a secret, or follows an option with a secret name, also after `=`.
    fn add_arguments(&mut self, arguments: &[String]) {
        let mut is_next = false;
        for argument in arguments {
            if is_next || without_secrets(argument, "").is_some() {
                self.0.push(argument.clone());
            }
            match argument.split_once('=') {
                Some((name, value)) if is_secret(name) => self.0.push(value.to_owned()),
                _ => {}
            }
            self.add_url(argument);
            is_next = is_secret_option(argument);
        }
    }

    /// Adds the credentials and keys in a URL.
    fn add_url(&mut self, url: &str) {
        let Ok(url) = Url::parse(url) else { return };
        let decoded = |text: &str| {
            // As the value of a form, but for `+`.
            let pair = text.replace('+', "%2B");
            let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
            pairs
                .next()
                .map(|(text, _)| text.into_owned())
                .unwrap_or_default()
        };
        if let Some(password) = url.password() {
            let (user, password) = (decoded(url.username()), decoded(password));
            self.0.push(format!("{user}:{password}"));
            self.0.push(password);
        }
        self.0.push(decoded(url.username()));
        self.0
            .extend(url.query_pairs().map(|(_, value)| value.into_owned()));
        let is_key = |part: &&str| part.len() >= KEY && part.contains(|c: char| c.is_ascii_digit());
        let path = url.path().split('/').filter(is_key);
        self.0.extend(path.map(decoded));
    }

    /// Adds secrets, and also each word of a secret such as `Bearer TOKEN`.
    fn extend<'a>(&mut self, secrets: impl IntoIterator<Item = &'a Secret>) {
        for secret in secrets {
            let text = secret.expose();
            self.0.push(text.to_owned());
            if let Some((scheme, rest)) = text.split_once(' ')
                && scheme.chars().all(char::is_alphabetic)
            {
                self.0.push(rest.trim().to_owned());
            }
        }
    }
}
