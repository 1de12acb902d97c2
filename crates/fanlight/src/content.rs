//! The rules for which calls keep their content in traces, from the configuration.

use fanlight_canonical::Endpoint;
use fanlight_config::{Config, ContentChoice};
use fanlight_telemetry::{ContentSettings, Level};

use crate::wiring::client_guard;

/// The rules. The addresses in `config` are those in force.
pub(crate) fn settings(config: &Config) -> ContentSettings {
    let choice = config.telemetry.content;
    let of_server = |server: &fanlight_config::Server| {
        let level = level(server.content?, config);
        Some((server.name.clone(), level))
    };
    let of_endpoint = |(path, endpoint): &(String, fanlight_config::Endpoint)| {
        let level = level(endpoint.content?, config);
        let endpoint = Endpoint::from_path(path.as_str());
        let path = endpoint.path().map_or("", |path| path).to_owned();
        Some((path, level))
    };
    ContentSettings {
        level: level(choice, config),
        is_chosen: choice != ContentChoice::Auto,
        servers: config.servers.iter().filter_map(of_server).collect(),
        endpoints: config.endpoints.iter().filter_map(of_endpoint).collect(),
    }
}

fn level(choice: ContentChoice, config: &Config) -> Level {
    match choice {
        ContentChoice::Auto if is_personal(config) => Level::On,
        ContentChoice::Auto | ContentChoice::Off => Level::Off,
        ContentChoice::Errors => Level::Errors,
        ContentChoice::On => Level::On,
    }
}

/// Whether the gateway is one person's own: nobody signs in, and only this machine reaches it.
fn is_personal(config: &Config) -> bool {
    let admin = &config.admin;
    config.auth.methods().is_none()
        && admin.roles.is_empty()
        && config.listen.is_local()
        && admin
            .listen
            .as_ref()
            .is_none_or(|address| address.is_local())
        && config.public_url.is_none()
        && admin.public_url.is_none()
        && client_guard(config, &config.listen).is_for_this_machine()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse_settings(options: &str) -> ContentSettings {
        let text = format!(
            r#"{{{options}"mcpServers":{{"a":{{"command":"a","content":"errors"}},"b":{{"command":"b"}}}}}}"#
        );
        let loaded = fanlight_config::parse(&text, Path::new("f.json"), &|_| None).unwrap();
        settings(&loaded.config)
    }

    #[test]
    fn content_is_kept_by_default_only_where_one_person_uses_the_gateway() {
        let own = parse_settings("");
        assert_eq!((own.level, own.is_chosen), (Level::On, false));
        assert_eq!(own.servers, [("a".to_owned(), Level::Errors)].into());
        for shared in [
            r#""auth":{"keys":{"file":"k"}},"#,
            r#""listen":"0.0.0.0:1","auth":"none","#,
            r#""admin":{"listen":"0.0.0.0:1","token":"0123456789abcdef"},"#,
            r#""publicUrl":"https://a.example","#,
            r#""publicUrl":"http://127.0.0.1:1","#,
            r#""admin":{"publicUrl":"https://a.example"},"#,
            r#""trustedProxies":["127.0.0.1"],"#,
            r#""allowedHosts":["a.example"],"#,
            r#""allowedHosts":["*"],"#,
        ] {
            assert_eq!(parse_settings(shared).level, Level::Off, "{shared}");
        }
        for own in [
            r#""allowedHosts":["localhost"],"#,
            r#""auth":"none","#,
            r#""admin":{"token":"0123456789abcdef"},"#,
        ] {
            assert_eq!(parse_settings(own).level, Level::On, "{own}");
        }
    }

    #[test]
    fn chosen_levels_are_words_or_flags() {
        for (text, level) in [
            ("true", Level::On),
            ("false", Level::Off),
            (r#""on""#, Level::On),
            (r#""errors""#, Level::Errors),
            (r#""off""#, Level::Off),
        ] {
            let of = parse_settings(&format!(
                r#""telemetry":{{"content":{text}}},"endpoints":{{"/mcp":{{"content":{text}}},"/mcp/x":{{}}}},"#
            ));
            assert_eq!((of.level, of.is_chosen), (level, true), "{text}");
            assert_eq!(of.endpoints, [(String::new(), level)].into(), "{text}");
        }
    }
}
