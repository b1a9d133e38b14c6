//! The resource manager that GSP runs: state that RPCs act on.

use crate::abi::Abi;
use crate::abi::common::classes::{NV01_DEVICE_0, NV20_SUBDEVICE_0};
use crate::abi::status::Status;
use crate::abi::values::Host;
use crate::model::channel::Channels;
use crate::model::config::GspConfig;
use crate::model::counters::{Call, Counters, Note, Notes};
use crate::model::display::Display;
use crate::model::effect::Effect;
use crate::model::error::SavedError;
use crate::model::kernel_channels::KernelChannels;
use crate::model::notifiers::Notifiers;
use crate::model::objects::{Id, Kind, Objects};
use crate::model::refusals::Refusals;
use crate::model::robust_channel::RobustChannelError;
use crate::model::shared_data::SharedData;
use crate::model::token::Token;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// `ROBUST_CHANNEL_PREEMPTIVE_REMOVAL`: a channel was taken off without a fault in its work.
const ROBUST_CHANNEL_PREEMPTIVE_REMOVAL: u32 = 45;

/// Handles of the objects that firmware makes for the driver, below the version's own client.
pub(super) const INTERNAL_DEVICE: u32 = 0xabcd_0080;
pub(super) const INTERNAL_SUBDEVICE: u32 = 0xabcd_2080;

/// State that RPCs act on.
#[derive(Debug)]
pub(super) struct Rm {
    pub(super) config: GspConfig,
    pub(super) abi: &'static Abi,
    pub(super) objects: Objects,
    pub(super) channels: Channels,
    /// Those of them that are carried out here.
    pub(super) kernel_channels: KernelChannels,
    /// Where drivers look for errors of their channels.
    pub(super) notifiers: Notifiers,
    /// What the driver's programs read without asking.
    pub(super) shared_data: SharedData,
    /// The display engine.
    pub(super) display: Display,
    pub(super) counters: Counters,
    pub(super) refusals: Refusals,
    pub(super) notes: Notes,
    /// What the driver said of the host.
    pub(super) host: Host,
    /// The entry of BAR2's root directory that the driver gave.
    pub(super) bar2_entry: u64,
    /// Bus address of what names the memory for a suspension, once the driver said so.
    pub(super) saved_at: Option<u64>,
    /// Where a driver that lays out VRAM itself has put the heap outside of the protected region; 0 where GSP
    /// does that.
    pub(super) non_wpr_heap: u64,
    /// Channels that did not survive a suspension, to be reported to the driver.
    pub(super) lost: Vec<(Token, RobustChannelError)>,
    /// The time, when the present commands came.
    pub(super) now: u64,
    /// Effects of the present RPC for the face.
    pub(super) effects: Vec<Effect>,
}

impl Rm {
    pub(super) fn new(config: GspConfig, abi: &'static Abi) -> Self {
        Self {
            config,
            abi,
            objects: Objects::new(config.objects),
            channels: Channels::default(),
            kernel_channels: KernelChannels::default(),
            notifiers: Notifiers::default(),
            shared_data: SharedData::default(),
            display: Display::default(),
            counters: Counters::default(),
            refusals: Refusals::default(),
            notes: Notes::default(),
            host: Host::default(),
            bar2_entry: 0,
            saved_at: None,
            non_wpr_heap: 0,
            lost: Vec::new(),
            now: 0,
            effects: Vec::new(),
        }
    }

    /// Forgets all objects, and takes all channels from the back.
    pub(super) fn clear(&mut self, back: &dyn GspBackend) {
        self.channels.clear(back);
        self.kernel_channels.clear();
        self.notifiers.clear();
        self.shared_data.set_record(None);
        let channels = self.objects.iter().filter_map(|(_, object)| object.kind.display_channel());
        channels.for_each(|name| self.display.close(name));
        self.display.clear();
        self.objects.clear();
        self.bar2_entry = 0;
        self.saved_at = None;
        self.lost.clear();
    }

    /// Counts and notes that the state is not saved; the status that tells the driver.
    pub(super) fn not_saved(&mut self, error: SavedError) -> Status {
        self.counters.saves_refused = self.counters.saves_refused.saturating_add(1);
        self.note(Note::NotSaved(error));
        match error {
            SavedError::TooSmall { .. } => Status::InsufficientResources,
            _ => Status::InvalidAddress,
        }
    }

    /// Stops a channel that cannot go on after a suspension.
    pub(super) fn lose(&mut self, token: Token) {
        if let Some(engine) = self.channels.stop(token) {
            self.lost.push((token, RobustChannelError::plain(engine, ROBUST_CHANNEL_PREEMPTIVE_REMOVAL)));
        }
    }

    /// Makes the client, device and subdevice that a driver finds without asking for them.
    pub(super) fn make_internal(&mut self) -> Result<(), Status> {
        let client = self.abi.internal_client;
        let id = |handle| Id { client, handle };
        self.objects.add_client(client)?;
        self.objects.add(id(INTERNAL_DEVICE), client, NV01_DEVICE_0, Kind::Device)?;
        self.objects.add(id(INTERNAL_SUBDEVICE), INTERNAL_DEVICE, NV20_SUBDEVICE_0, Kind::Subdevice)
    }

    /// Speaks another version from now on. There are no objects but firmware's own.
    pub(super) fn speak(&mut self, abi: &'static Abi) -> Result<(), Status> {
        self.objects.clear();
        self.abi = abi;
        self.make_internal()
    }

    /// True for an object that firmware makes for the driver.
    pub(super) fn is_internal(&self, id: Id) -> bool {
        let client = self.abi.internal_client;
        id.client == client && [client, INTERNAL_DEVICE, INTERNAL_SUBDEVICE].contains(&id.handle)
    }

    /// True when there are objects that the driver allocated.
    pub(super) fn has_objects_of_driver(&self) -> bool {
        self.objects.iter().any(|(id, _)| !self.is_internal(id))
    }

    /// Checks where a page directory is said to be.
    pub(super) fn check_directory(&self, directory: PhysicalAddress) -> Result<(), Status> {
        let PhysicalAddress { aperture, address } = directory;
        if !address.is_multiple_of(PAGE_SIZE) {
            return Err(Status::InvalidAddress);
        }
        let inside = address.checked_add(PAGE_SIZE).is_some_and(|end| end <= self.config.vram);
        if aperture == Aperture::Vram && !inside {
            return Err(Status::InvalidAddress);
        }
        Ok(())
    }

    /// Notes where an address space's page tables are.
    pub(super) fn keep_directory(&mut self, id: Id, directory: PhysicalAddress) -> Result<(), Status> {
        let place = self.objects.place_of_space(id)?;
        self.keep_directory_at(place, directory)
    }

    /// Notes where the page tables are of the address space at a place.
    pub(super) fn keep_directory_at(&mut self, place: Id, directory: PhysicalAddress) -> Result<(), Status> {
        self.check_directory(directory)?;
        // Channels at the back have the directory that was there when they were made.
        let at_back = |handle: &u32| {
            let token = self.objects.channel(Id { client: place.client, handle: *handle });
            token.is_ok_and(|token| self.channels.is_at_back(token))
        };
        let in_use = self.objects.space(place)?.channels.iter().any(at_back);
        let space = self.objects.space_mut(place)?;
        if in_use && space.page_directory != Some(directory) {
            return Err(Status::StateInUse);
        }
        space.page_directory = Some(directory);
        Ok(())
    }

    /// Frees an object and what goes with it.
    pub(super) fn free(&mut self, back: &dyn GspBackend, id: Id) -> Result<(), Status> {
        if self.is_internal(id) {
            return Err(Status::InsufficientPermissions);
        }
        if id.handle == 0 && self.objects.has_client(id.client) {
            // nouveau frees by the name 0 what it allocated by it, and never hears the name that was made up.
            // That object goes with its channel; an error would be on the console each time a Vulkan program
            // ends.
            return Ok(());
        }
        for kind in self.objects.remove(id)? {
            if let Some(name) = kind.display_channel() {
                self.display.close(name);
            }
            if let Kind::Channel { token, .. } = kind {
                self.channels.destroy(back, token);
                self.kernel_channels.end(token);
                self.notifiers.remove(token);
            }
        }
        Ok(())
    }

    /// Keeps a note.
    pub(super) fn note(&mut self, note: Note) {
        self.notes.add(note, &mut self.counters);
    }

    /// Notes a call that is not known.
    pub(super) fn unknown(&mut self, what: Call) {
        self.note(Note::Unknown { what, name: what.name(self.abi) });
    }

    /// Counts and notes how a call ended.
    pub(super) fn ended(&mut self, what: Call, outcome: Result<(), Status>) {
        if let Err(status) = outcome {
            self.counters.refused = self.counters.refused.saturating_add(1);
            self.refusals.count(status);
            self.note(Note::Refused { what, name: what.name(self.abi), status });
        }
    }
}
