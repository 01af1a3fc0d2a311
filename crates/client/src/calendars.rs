//! Calendars: named sets of days that schedules refer to.

use jiff::civil::Date;
use model::api::{Calendar, CalendarDays, ImportedCalendar, List};
use model::calendar::CalendarSpec;

use crate::error::Error;
use crate::http::{Client, Request};

fn named(request: Request, namespace: Option<&str>) -> Request {
    request.query_opt("namespace", namespace)
}

impl Client {
    /// All calendars of a namespace, by name, and the built-in ones.
    ///
    /// # Errors
    /// As every request.
    pub async fn calendars(&self, namespace: Option<&str>) -> Result<Vec<Calendar>, Error> {
        let list: List<Calendar> = self.json(named(Request::get(["calendars"]), namespace)).await?;
        Ok(list.items)
    }

    /// One calendar.
    ///
    /// # Errors
    /// As every request.
    pub async fn calendar(&self, name: &str, namespace: Option<&str>) -> Result<Calendar, Error> {
        self.json(named(Request::get(["calendars", name]), namespace)).await
    }

    /// Sets a calendar up, replacing what it was.
    ///
    /// With `version`, only if it is still that one; 0 stands for a calendar that does not exist.
    ///
    /// # Errors
    /// As every request.
    pub async fn put_calendar(&self, spec: &CalendarSpec, version: Option<u64>) -> Result<Calendar, Error> {
        let request = named(Request::put(["calendars", &spec.name]), Some(&spec.namespace)).json(spec);
        self.json(match version {
            Some(0) => request.header("if-none-match", "*").once(),
            version => request.if_match(version),
        })
        .await
    }

    /// Checks a calendar; nothing is stored.
    ///
    /// # Errors
    /// As every request.
    pub async fn put_calendar_dry_run(&self, spec: &CalendarSpec) -> Result<CalendarSpec, Error> {
        let request = named(Request::put(["calendars", &spec.name]), Some(&spec.namespace));
        self.json(request.query("dry_run", true).json(spec)).await
    }

    /// Forgets a calendar that nothing refers to.
    ///
    /// # Errors
    /// As every request.
    pub async fn delete_calendar(&self, name: &str, namespace: Option<&str>) -> Result<(), Error> {
        self.done(named(Request::delete(["calendars", name]), namespace)).await
    }

    /// The days of a calendar from one day to another, both included.
    ///
    /// # Errors
    /// As every request.
    pub async fn calendar_days(
        &self,
        name: &str,
        namespace: Option<&str>,
        from: Date,
        until: Date,
    ) -> Result<CalendarDays, Error> {
        let request = Request::get(["calendars", name, "days"]).query("from", from).query("until", until);
        self.json(named(request, namespace)).await
    }

    /// Reads an iCalendar text; saved under `name`, if one is given.
    ///
    /// # Errors
    /// As every request.
    pub async fn import_calendar(
        &self,
        text: &str,
        name: Option<&str>,
        namespace: Option<&str>,
    ) -> Result<ImportedCalendar, Error> {
        let request = Request::post(["calendars", "import"]).text("text/calendar", text);
        self.json(named(request.query_opt("name", name), namespace).repeatable()).await
    }
}
