//! The two text forms that monitoring reads: Prometheus' classic one (version 0.0.4), which is what linters
//! and collectors of files take, and OpenMetrics 1.0, which is for who asks for it.

/// A text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Prometheus' text format, version 0.0.4.
    Classic,
    /// OpenMetrics 1.0.
    Openmetrics,
}

impl Format {
    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
            Self::Openmetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that a client's `Accept` header asks for: OpenMetrics if it names that, and does not prefer
    /// plain text.
    pub fn wanted(accept: &str) -> Self {
        let weight = |name: &str| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let media = parts.next()?;
                let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
                media.eq_ignore_ascii_case(name).then(|| weight.unwrap_or(1.0))
            });
            ranges.fold(0.0, f32::max)
        };
        let open = weight("application/openmetrics-text");
        if open > 0.0 && open >= weight("text/plain") { Self::Openmetrics } else { Self::Classic }
    }

    /// A text of OpenMetrics in this form.
    pub(super) fn of_openmetrics(self, text: String) -> String {
        match self {
            Self::Openmetrics => text,
            Self::Classic => classic(&text),
        }
    }
}

/// There, the lines that describe a metric have the name of its samples; nothing is an info, nothing has a
/// unit, and nothing marks the end.
fn classic(text: &str) -> String {
    let mut classic = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        let words = || line.splitn(4, ' ').skip(2);
        if line.starts_with("# HELP ") {
            help = words().nth(1);
        } else if line.starts_with("# TYPE ") {
            let mut words = words();
            let (name, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let (ending, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some(help) = help.take() {
                classic.push_str(&format!("# HELP {name}{ending} {help}\n"));
            }
            classic.push_str(&format!("# TYPE {name}{ending} {kind}\n"));
        } else if !line.starts_with('#') {
            classic.push_str(line);
            classic.push('\n');
        }
    }
    classic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_who_asks_for_it() {
        for (accept, wanted) in [
            ("", Format::Classic),
            ("*/*", Format::Classic),
            ("text/plain;version=0.0.4", Format::Classic),
            ("application/openmetrics-text; version=1.0.0", Format::Openmetrics),
            ("Application/OpenMetrics-Text", Format::Openmetrics),
            ("application/openmetrics-text;q=0", Format::Classic),
            (
                "text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.1",
                Format::Classic,
            ),
            // Prometheus 2 and 3.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::Openmetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;q=0.3,*/*;q=0.1",
                Format::Openmetrics,
            ),
            ("nonsense;;q=x,,", Format::Classic),
        ] {
            assert_eq!(Format::wanted(accept), wanted, "{accept}");
        }
    }

    #[test]
    fn classic_text_describes_samples_by_their_names() {
        let text = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{vm=\"# x\"} 2.5\n\
                    # HELP b The program.\n# TYPE b info\nb_info{version=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 0.0\n# EOF\n";
        assert_eq!(
            Format::Classic.of_openmetrics(text.to_owned()),
            "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total{vm=\"# x\"} 2.5\n\
             # HELP b_info The program.\n# TYPE b_info gauge\nb_info{version=\"1\"} 1\n# HELP c Now.\n# TYPE c gauge\nc 0.0\n"
        );
        assert_eq!(Format::Openmetrics.of_openmetrics(text.to_owned()), text);
    }
}
