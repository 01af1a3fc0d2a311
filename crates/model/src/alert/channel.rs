//! Channels: where notifications of alerts go.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::default_namespace;

/// Text that responses contain in place of a secret. In a request it keeps the stored secret.
pub const HIDDEN: &str = "******";

/// Secret text, for example a token. Its `Debug` output hides it; [`SecretText::expose`] returns it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// Makes a text secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether the text is [`HIDDEN`] instead of a secret.
    pub fn is_hidden(&self) -> bool {
        self.0 == HIDDEN
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// A channel: where notifications of alerts go. Its secrets are stored encrypted, and responses hide them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChannelSpec {
    /// Name of the channel, unique in its namespace. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a letter
    /// or digit.
    pub name: String,
    /// Namespace (tenant) of the channel; only rules of this namespace can use it [default: `default`].
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Description of the channel, at most 1,000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Language of the notifications [default: `en`].
    #[serde(default)]
    pub language: Language,
    /// Service that receives the notifications, with its address and secrets.
    pub to: Target,
}

/// Language of notifications.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, ToSchema,
)]
pub enum Language {
    /// English.
    #[default]
    #[serde(rename = "en")]
    English,
    /// Simplified Chinese.
    #[serde(rename = "zh-CN")]
    Chinese,
}

crate::status::words! { Language, "a language", {
    English = "en";
    Chinese = "zh-CN";
} }

/// Service that receives notifications, with its address and secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// Any HTTP endpoint. Receives a CloudEvent as JSON, signed as Standard Webhooks define it.
    Webhook {
        /// URL of the endpoint, `https://` or `http://`.
        url: String,
        /// Key of the signature, at least 16 bytes [default: no signature].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<SecretText>,
        /// Additional headers of the request, for example `Authorization`; at most 20. Responses hide their values.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, SecretText>,
    },
    /// Incoming webhook of Slack.
    Slack {
        /// URL of the incoming webhook.
        url: SecretText,
    },
    /// Incoming webhook of Microsoft Teams (a workflow that posts Adaptive Cards).
    Teams {
        /// URL of the workflow.
        url: SecretText,
    },
    /// Webhook of Discord.
    Discord {
        /// URL of the webhook.
        url: SecretText,
    },
    /// Chat of a Telegram bot.
    Telegram {
        /// Token of the bot.
        token: SecretText,
        /// ID of the chat, or `@` and the name of a channel.
        chat: String,
        /// URL of the Bot API [default: `https://api.telegram.org`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
    /// Service of PagerDuty (Events API v2).
    Pagerduty {
        /// Integration key of the service.
        routing_key: SecretText,
        /// URL of the Events API [default: `https://events.pagerduty.com/v2/enqueue`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
    /// Alert API of Opsgenie.
    Opsgenie {
        /// Key of the API integration.
        api_key: SecretText,
        /// URL of the Alert API [default: `https://api.opsgenie.com/v2/alerts`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
    /// Alertmanager of Prometheus (API v2), as a receiver.
    Alertmanager {
        /// URL of Alertmanager, without `/api/v2/alerts`.
        url: String,
        /// Additional headers of the request, for example `Authorization`; at most 20. Responses hide their values.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, SecretText>,
    },
    /// Custom bot of a DingTalk group.
    Dingtalk {
        /// Webhook URL of the bot.
        url: SecretText,
        /// Secret of the signature, if the bot uses the security setting "sign" [default: no signature].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<SecretText>,
    },
    /// Custom bot of a Feishu or Lark group.
    Feishu {
        /// Webhook URL of the bot.
        url: SecretText,
        /// Secret of the signature, if the bot verifies signatures [default: no signature].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<SecretText>,
    },
    /// Bot of a WeCom (WeChat Work) group.
    Wecom {
        /// Webhook URL of the bot.
        url: SecretText,
    },
    /// E-mail over SMTP.
    Email {
        /// Recipients, 1 to 20.
        to: Vec<String>,
        /// Sender, for example `Belfry <belfry@example.com>`.
        from: String,
        /// Address of the SMTP server: `smtps://HOST[:PORT]` (TLS, port 465), `smtp+starttls://HOST[:PORT]` (port 587), or
        /// `smtp://HOST[:PORT]` (no encryption, port 25).
        server: String,
        /// User name at the SMTP server [default: no authentication].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        username: Option<String>,
        /// Password at the SMTP server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        password: Option<SecretText>,
    },
}

impl Target {
    /// Names of all kinds, in the order of the docs.
    pub const KINDS: [&'static str; 12] = [
        "webhook",
        "slack",
        "teams",
        "discord",
        "telegram",
        "pagerduty",
        "opsgenie",
        "alertmanager",
        "dingtalk",
        "feishu",
        "wecom",
        "email",
    ];

    /// Returns the name of the kind, for example `slack`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::Slack { .. } => "slack",
            Self::Teams { .. } => "teams",
            Self::Discord { .. } => "discord",
            Self::Telegram { .. } => "telegram",
            Self::Pagerduty { .. } => "pagerduty",
            Self::Opsgenie { .. } => "opsgenie",
            Self::Alertmanager { .. } => "alertmanager",
            Self::Dingtalk { .. } => "dingtalk",
            Self::Feishu { .. } => "feishu",
            Self::Wecom { .. } => "wecom",
            Self::Email { .. } => "email",
        }
    }

    /// Returns each secret with its path, for example `to.slack.url`.
    pub fn secrets_mut(&mut self) -> Vec<(String, &mut SecretText)> {
        let kind = self.kind();
        let named = |name: &str| format!("to.{kind}.{name}");
        match self {
            Self::Webhook { secret, headers, .. } => {
                let headers =
                    headers.iter_mut().map(|(key, value)| (named(&format!("headers.{key}")), value));
                secret.as_mut().map(|secret| (named("secret"), secret)).into_iter().chain(headers).collect()
            }
            Self::Alertmanager { headers, .. } => {
                headers.iter_mut().map(|(key, value)| (named(&format!("headers.{key}")), value)).collect()
            }
            Self::Slack { url } | Self::Teams { url } | Self::Discord { url } | Self::Wecom { url } => {
                vec![(named("url"), url)]
            }
            Self::Telegram { token, .. } => vec![(named("token"), token)],
            Self::Pagerduty { routing_key, .. } => vec![(named("routing_key"), routing_key)],
            Self::Opsgenie { api_key, .. } => vec![(named("api_key"), api_key)],
            Self::Dingtalk { url, secret } | Self::Feishu { url, secret } => {
                let secret = secret.as_mut().map(|secret| (named("secret"), secret));
                std::iter::once((named("url"), url)).chain(secret).collect()
            }
            Self::Email { password, .. } => {
                password.as_mut().map(|password| (named("password"), password)).into_iter().collect()
            }
        }
    }

    /// Hides all secrets.
    pub fn hide_secrets(&mut self) {
        for (_, secret) in self.secrets_mut() {
            *secret = SecretText::new(HIDDEN);
        }
    }

    /// Returns the address to which the other secrets are sent; `None` if it is the default one, or itself hidden.
    fn address(&self) -> Option<&str> {
        match self {
            Self::Webhook { url, .. } | Self::Alertmanager { url, .. } => Some(url),
            Self::Telegram { url, .. } | Self::Pagerduty { url, .. } | Self::Opsgenie { url, .. } => {
                url.as_deref()
            }
            Self::Email { server, .. } => Some(server),
            Self::Dingtalk { url, .. } | Self::Feishu { url, .. } => {
                Some(url).filter(|url| !url.is_hidden()).map(SecretText::expose)
            }
            Self::Slack { .. } | Self::Teams { .. } | Self::Discord { .. } | Self::Wecom { .. } => None,
        }
    }

    /// Replaces each hidden secret with the stored one at the same path. Secrets of another address are not kept: else
    /// they could be sent to an address of the caller's choice.
    ///
    /// # Errors
    /// Returns the path of a hidden secret that has no stored one.
    pub fn keep_secrets(&mut self, stored: Option<&Self>) -> Result<(), String> {
        let has_hidden_url =
            matches!(self, Self::Dingtalk { url, .. } | Self::Feishu { url, .. } if url.is_hidden());
        let same_address = |stored: &&Self| {
            stored.kind() == self.kind() && (has_hidden_url || stored.address() == self.address())
        };
        let mut stored = stored.filter(same_address).cloned();
        let mut known: BTreeMap<_, _> = stored.iter_mut().flat_map(Self::secrets_mut).collect();
        for (path, secret) in self.secrets_mut().into_iter().filter(|(_, secret)| secret.is_hidden()) {
            match known.remove(&path) {
                Some(kept) => secret.clone_from(kept),
                None => return Err(path),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(url: &str, secret: &str) -> Target {
        Target::Webhook {
            url: url.to_owned(),
            secret: Some(SecretText::new(secret)),
            headers: BTreeMap::from([("Authorization".to_owned(), SecretText::new(secret))]),
        }
    }

    #[test]
    fn a_hidden_secret_keeps_the_stored_one_only_for_the_same_address() {
        let stored = webhook("https://a.example", "geheim");
        let mut shown = stored.clone();
        shown.hide_secrets();
        assert_eq!(shown, webhook("https://a.example", HIDDEN));
        let mut kept = shown.clone();
        kept.keep_secrets(Some(&stored)).unwrap();
        assert_eq!(kept, stored);
        assert_eq!(shown.clone().keep_secrets(None), Err("to.webhook.secret".to_owned()));
        let mut moved = webhook("https://b.example", HIDDEN);
        assert_eq!(moved.keep_secrets(Some(&stored)), Err("to.webhook.secret".to_owned()));
        let mut new = webhook("https://b.example", "new");
        new.keep_secrets(Some(&stored)).unwrap();
        assert_eq!(new, webhook("https://b.example", "new"));
    }

    #[test]
    fn debug_output_hides_secrets() {
        let shown = format!("{:?}", webhook("https://a.example", "geheim"));
        assert!(!shown.contains("geheim"), "{shown}");
    }
}
