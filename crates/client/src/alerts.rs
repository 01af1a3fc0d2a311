//! Alerts, alert rules, channels, silences and notifications.

use model::alert::{AlertRuleSpec, ChannelSpec, Severity};
use model::api::{
    Alert, AlertAct, AlertRule, AlertRules, AlertStatus, Alerts, Channel, ChannelTest, Channels, NewSilence,
    NotificationStatus, Notifications, Silence, Silences,
};

use crate::error::Error;
use crate::http::{Client, Request};

/// Conditions for a list of alerts. All conditions must match.
#[derive(Debug, Clone, Default)]
pub struct AlertFilter {
    /// Only alerts of this namespace.
    pub namespace: Option<String>,
    /// Only alerts in one of these statuses; empty for open alerts.
    pub statuses: Vec<AlertStatus>,
    /// Only alerts with one of these severities; empty for all.
    pub severities: Vec<Severity>,
    /// Only alerts of rules with this name; `*` stands for any characters.
    pub rule: Option<String>,
    /// Only alerts about objects with this name; `*` stands for any characters.
    pub subject: Option<String>,
    /// Maximum number of alerts.
    pub limit: Option<u32>,
}

/// Conditions for a list of notifications. All conditions must match.
#[derive(Debug, Clone, Default)]
pub struct NotificationFilter {
    /// Only notifications of this namespace.
    pub namespace: Option<String>,
    /// Only notifications in this status.
    pub status: Option<NotificationStatus>,
    /// Only notifications to this channel.
    pub channel: Option<String>,
    /// Only notifications of this rule.
    pub rule: Option<String>,
    /// Maximum number of notifications.
    pub limit: Option<u32>,
}

fn joined<T: ToString>(words: &[T]) -> Option<String> {
    let words: Vec<_> = words.iter().map(ToString::to_string).collect();
    (!words.is_empty()).then(|| words.join(","))
}

impl Client {
    /// Returns alerts: open ones first, each newest first.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn alerts(&self, filter: &AlertFilter) -> Result<Alerts, Error> {
        let request = Request::get(["alerts"])
            .query_opt("namespace", filter.namespace.as_deref())
            .query_opt("status", joined(&filter.statuses))
            .query_opt("severity", joined(&filter.severities))
            .query_opt("rule", filter.rule.as_deref())
            .query_opt("subject", filter.subject.as_deref())
            .query_opt("limit", filter.limit);
        self.json(request).await
    }

    /// Returns an alert.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `alert_not_found`.
    pub async fn alert(&self, id: u64) -> Result<Alert, Error> {
        self.json(Request::get(["alerts", &id.to_string()])).await
    }

    /// Acknowledges an alert.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `alert_not_found` and `alert_resolved`.
    pub async fn acknowledge_alert(&self, id: u64, act: &AlertAct) -> Result<Alert, Error> {
        let request = Request::post(["alerts", &id.to_string(), "acknowledge"]);
        self.json(request.json(act).repeatable()).await
    }

    /// Resolves an alert.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `alert_not_found` and `alert_resolved`.
    pub async fn resolve_alert(&self, id: u64, act: &AlertAct) -> Result<Alert, Error> {
        self.json(Request::post(["alerts", &id.to_string(), "resolve"]).json(act)).await
    }

    /// Returns all alert rules of a namespace, or of all.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn alert_rules(&self, namespace: Option<&str>) -> Result<Vec<AlertRule>, Error> {
        let list: AlertRules =
            self.json(Request::get(["alert-rules"]).query_opt("namespace", namespace)).await?;
        Ok(list.items)
    }

    /// Returns an alert rule.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `alert_rule_not_found`.
    pub async fn alert_rule(&self, namespace: &str, name: &str) -> Result<AlertRule, Error> {
        self.json(Request::get(["alert-rules", name]).query("namespace", namespace)).await
    }

    /// Creates an alert rule, or replaces it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `alert_limit`.
    pub async fn put_alert_rule(&self, spec: &AlertRuleSpec) -> Result<AlertRule, Error> {
        let request = Request::put(["alert-rules", &spec.name]).query("namespace", &spec.namespace);
        self.json(request.json(spec)).await
    }

    /// Validates an alert rule without storing it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn put_alert_rule_dry_run(&self, spec: &AlertRuleSpec) -> Result<AlertRuleSpec, Error> {
        let request = Request::put(["alert-rules", &spec.name]).query("namespace", &spec.namespace);
        self.json(request.query("dry_run", true).json(spec)).await
    }

    /// Deletes an alert rule.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `alert_rule_not_found`.
    pub async fn delete_alert_rule(&self, namespace: &str, name: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["alert-rules", name]).query("namespace", namespace)).await
    }

    /// Returns all channels of a namespace, or of all, with hidden secrets.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn channels(&self, namespace: Option<&str>) -> Result<Vec<Channel>, Error> {
        let list: Channels = self.json(Request::get(["channels"]).query_opt("namespace", namespace)).await?;
        Ok(list.items)
    }

    /// Returns a channel with hidden secrets.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `channel_not_found`.
    pub async fn channel(&self, namespace: &str, name: &str) -> Result<Channel, Error> {
        self.json(Request::get(["channels", name]).query("namespace", namespace)).await
    }

    /// Creates a channel, or replaces it. [`model::alert::HIDDEN`] in place of a secret keeps the stored one.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `alert_limit`.
    pub async fn put_channel(&self, spec: &ChannelSpec) -> Result<Channel, Error> {
        let request = Request::put(["channels", &spec.name]).query("namespace", &spec.namespace);
        self.json(request.json(spec)).await
    }

    /// Validates a channel without storing it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn put_channel_dry_run(&self, spec: &ChannelSpec) -> Result<ChannelSpec, Error> {
        let request = Request::put(["channels", &spec.name]).query("namespace", &spec.namespace);
        self.json(request.query("dry_run", true).json(spec)).await
    }

    /// Sends a test notification, and returns whether the service accepted it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `channel_not_found`.
    pub async fn test_channel(&self, namespace: &str, name: &str) -> Result<ChannelTest, Error> {
        self.json(Request::post(["channels", name, "test"]).query("namespace", namespace)).await
    }

    /// Deletes a channel.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `channel_not_found` and `channel_in_use`.
    pub async fn delete_channel(&self, namespace: &str, name: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["channels", name]).query("namespace", namespace)).await
    }

    /// Returns current and future silences of a namespace, or of all.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn silences(&self, namespace: Option<&str>) -> Result<Vec<Silence>, Error> {
        let list: Silences = self.json(Request::get(["silences"]).query_opt("namespace", namespace)).await?;
        Ok(list.items)
    }

    /// Creates a silence.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn create_silence(&self, new: &NewSilence) -> Result<Silence, Error> {
        self.json(Request::post(["silences"]).json(new)).await
    }

    /// Ends a silence.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `silence_not_found`.
    pub async fn end_silence(&self, id: u64) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["silences", &id.to_string()])).await
    }

    /// Returns notifications, newest first.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn notifications(&self, filter: &NotificationFilter) -> Result<Notifications, Error> {
        let request = Request::get(["notifications"])
            .query_opt("namespace", filter.namespace.as_deref())
            .query_opt("status", filter.status)
            .query_opt("channel", filter.channel.as_deref())
            .query_opt("rule", filter.rule.as_deref())
            .query_opt("limit", filter.limit);
        self.json(request).await
    }
}
