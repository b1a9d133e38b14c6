//! Takes records from the access path without ever holding it up, and writes them from a thread of its own.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::record::{MAGIC, Operation, Record};
use crate::jail::{self, Role};
use crate::pci::Region;

/// Records that may wait for the writer: 3 MiB.
const QUEUE: usize = 1 << 16;

/// How long written records stay in memory while nothing new comes.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// Writes a trace. Dropping it completes the file.
#[derive(Debug)]
pub struct Recorder {
    queue: Option<SyncSender<Record>>,
    lost: Arc<AtomicU64>,
    began: Instant,
    writer: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Creates the file and starts the writer.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Self::start(File::create(path)?, path)
    }

    /// Starts the writer of an empty file; `path` is what messages call it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn start(file: File, path: &Path) -> std::io::Result<Self> {
        let mut file = BufWriter::new(file);
        file.write_all(&MAGIC)?;
        let (queue, records) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let began = Instant::now();
        let counted = Arc::clone(&lost);
        let shown = path.display().to_string();
        let writer = std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
            jail::enter(Role::Trace);
            if let Err(error) = write_all(&records, &mut file, &counted) {
                log::error!("The trace {shown} ends early: {error}");
            }
        })?;
        Ok(Self { queue: Some(queue), lost, began, writer: Some(writer) })
    }

    /// Adds an access. Never waits: when the queue is full the record is counted as lost.
    pub fn access(&self, operation: Operation, region: Option<Region>, offset: u64, data: &[u8]) {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Long accesses (configuration space, ROM) become several records of 8 bytes.
        let mut at = offset;
        let mut pieces = data.chunks(8);
        let first = pieces.next().unwrap_or(&[]);
        for piece in std::iter::once(first).chain(pieces) {
            let mut value = [0; 8];
            for (to, from) in value.iter_mut().zip(piece) {
                *to = *from;
            }
            let size = u8::try_from(piece.len()).unwrap_or(8);
            let value = u64::from_le_bytes(value);
            self.record(Record { nanos, operation, region, size, offset: at, value });
            at = at.wrapping_add(8);
        }
    }

    fn record(&self, record: Record) {
        if self.queue.as_ref().is_none_or(|queue| queue.try_send(record).is_err()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has nothing more to complete.
            let _ = writer.join();
        }
    }
}

fn write_all(records: &Receiver<Record>, file: &mut impl Write, lost: &AtomicU64) -> std::io::Result<()> {
    loop {
        match records.recv_timeout(FLUSH_AFTER) {
            Ok(record) => {
                let missing = lost.swap(0, Ordering::Relaxed);
                if missing > 0 {
                    let note = Record {
                        operation: Operation::Lost,
                        region: None,
                        size: 0,
                        offset: 0,
                        value: missing,
                        ..record
                    };
                    file.write_all(&note.encode())?;
                }
                file.write_all(&record.encode())?;
            }
            Err(RecvTimeoutError::Timeout) => file.flush()?,
            Err(RecvTimeoutError::Disconnected) => return file.flush(),
        }
    }
}
