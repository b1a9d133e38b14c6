//! The devices of a VM that other processes serve: what its file and the command line ask for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::back_ends::BackEnds;
use crate::config::{Forward, Share, VmFile, usual_mac};
use crate::pci::PciFunction;
use crate::vmm::vhost_user::{BackEnd, Deadlines, STEP_LIMIT, back_end_function};

/// Most devices of other processes: the PCI bus has room for more.
const MOST_DEVICES: usize = 12;
/// How long a back end may take until it listens.
const START: Duration = Duration::from_secs(10);

/// Options of `gpuvmk vmm` for them.
#[derive(Debug, clap::Args)]
pub(super) struct DeviceOptions {
    /// A network of this user's, without root: `user`. The guest gets an address by DHCP, reaches what this
    /// user reaches, and is reached at forwarded ports. Starts the program passt.
    #[arg(long, value_name = "user", value_parser = ["user"])]
    net: Option<String>,
    /// A port of this host at which the guest is reached, with --net user: [udp:][ADDRESS/]PORT[:PORT], the
    /// host's and the guest's.
    #[arg(long, value_name = "PORTS", value_parser = Forward::parse)]
    forward: Vec<Forward>,
    /// A folder of this host that the guest can mount: mount -t virtiofs TAG /mnt. Starts the program
    /// virtiofsd.
    #[arg(long, value_name = "FOLDER=TAG", value_parser = Share::parse)]
    share: Vec<Share>,
    /// A device that another process serves, at a socket where it listens: net=PATH[,mac=ADDRESS],
    /// fs=PATH,tag=NAME, blk=PATH, or NUMBER=PATH[,config=BYTES] for another of virtio's kinds; each but net
    /// with [,queues=NUMBER].
    #[arg(long, value_name = "KIND=PATH")]
    vhost_user: Vec<String>,
}

/// The devices, before they are functions.
#[derive(Debug)]
pub(super) struct VmDevices {
    started: BackEnds,
    /// Those that others have started.
    found: Vec<BackEnd>,
}

impl VmDevices {
    /// Reads what is asked for, and starts the process that starts back ends. To be called before this one
    /// has threads.
    ///
    /// # Errors
    /// Something cannot be had.
    pub(super) fn open(options: &DeviceOptions, config: &VmFile) -> anyhow::Result<Self> {
        let (devices, mac) = (config.devices(), usual_mac(config.name()));
        let in_file = devices.vhost_user.iter();
        let found = in_file.chain(&options.vhost_user).map(|text| BackEnd::parse(text, mac));
        let found: Vec<_> =
            found.collect::<Result<_, _>>().map_err(anyhow::Error::msg).context("--vhost-user")?;
        let user_network = devices.user_network || options.net.is_some();
        let forwards = [devices.forwards.as_slice(), &options.forward].concat();
        ensure!(
            user_network || forwards.is_empty(),
            "Ports are forwarded to a network of the user's: --net user"
        );
        let shares = [devices.shares.as_slice(), &options.share].concat();
        let number = found.len() + shares.len() + usize::from(user_network);
        ensure!(
            number <= MOST_DEVICES,
            "{number} devices of other processes are given, and a VM has {MOST_DEVICES} at most"
        );
        let started = BackEnds::start(user_network.then_some((mac, &forwards)), &shares)?;
        Ok(Self { started, found })
    }

    fn all(&self) -> impl Iterator<Item = &BackEnd> {
        self.started.devices.iter().chain(&self.found)
    }

    /// Where their sockets are.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &Path> {
        self.all().map(|back_end| back_end.socket.as_path())
    }

    /// The functions of the guest's PCI bus. Waits for back ends to be there.
    ///
    /// # Errors
    /// One is not, or the host lacks something.
    pub(super) fn functions(&self) -> anyhow::Result<Vec<Arc<dyn PciFunction>>> {
        if self.all().next().is_none() {
            return Ok(Vec::new());
        }
        let deadlines = Deadlines::start(STEP_LIMIT).context("Cannot start a thread")?;
        let function = |back_end: &BackEnd| -> anyhow::Result<Arc<dyn PciFunction>> {
            Ok(Arc::new(back_end_function(back_end.clone(), &deadlines, START)?))
        };
        self.all().map(function).collect()
    }
}
