//! Calendars: named sets of days to which schedules refer.

use jiff::civil::Date;
use model::api::{Calendar, CalendarDays, ImportedCalendar, List};
use model::calendar::CalendarSpec;

use crate::error::Error;
use crate::http::{Client, Request};

fn in_namespace(request: Request, namespace: Option<&str>) -> Request {
    request.query_opt("namespace", namespace)
}

impl Client {
    /// Returns all calendars of a namespace, sorted by name, and the built-in calendars. The namespace `*` selects all
    /// namespaces.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn calendars(&self, namespace: Option<&str>) -> Result<Vec<Calendar>, Error> {
        let list: List<Calendar> = self.json(in_namespace(Request::get(["calendars"]), namespace)).await?;
        Ok(list.items)
    }

    /// Returns a calendar with its spec.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `calendar_not_found`.
    pub async fn calendar(&self, name: &str, namespace: Option<&str>) -> Result<Calendar, Error> {
        self.json(in_namespace(Request::get(["calendars", name]), namespace)).await
    }

    /// Creates a calendar, or replaces it.
    ///
    /// With `version`, the request fails unless the stored calendar has this version; `Some(0)` requires that it does
    /// not exist.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `version_mismatch`.
    pub async fn put_calendar(&self, spec: &CalendarSpec, version: Option<u64>) -> Result<Calendar, Error> {
        let request = in_namespace(Request::put(["calendars", &spec.name]), Some(&spec.namespace)).json(spec);
        self.json(match version {
            Some(0) => request.header("if-none-match", "*").once(),
            version => request.if_match(version),
        })
        .await
    }

    /// Validates a calendar and returns it with all defaults, without storing it.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn put_calendar_dry_run(&self, spec: &CalendarSpec) -> Result<CalendarSpec, Error> {
        let request = in_namespace(Request::put(["calendars", &spec.name]), Some(&spec.namespace));
        self.json(request.query("dry_run", true).json(spec)).await
    }

    /// Deletes a calendar.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `calendar_not_found`, `calendar_in_use` and
    /// `calendar_built_in`.
    pub async fn delete_calendar(&self, name: &str, namespace: Option<&str>) -> Result<(), Error> {
        self.send_ignoring_body(in_namespace(Request::delete(["calendars", name]), namespace)).await
    }

    /// Returns the days of a calendar from `from` to `until`, both inclusive.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `calendar_not_found`.
    pub async fn calendar_days(
        &self,
        name: &str,
        namespace: Option<&str>,
        from: Date,
        until: Date,
    ) -> Result<CalendarDays, Error> {
        let request = Request::get(["calendars", name, "days"]).query("from", from).query("until", until);
        self.json(in_namespace(request, namespace)).await
    }

    /// Parses an iCalendar text (RFC 5545). With `name`, stores the result as a calendar.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec`.
    pub async fn import_calendar(
        &self,
        text: &str,
        name: Option<&str>,
        namespace: Option<&str>,
    ) -> Result<ImportedCalendar, Error> {
        let request = Request::post(["calendars", "import"]).text("text/calendar", text);
        self.json(in_namespace(request.query_opt("name", name), namespace).repeatable()).await
    }
}
