// node watchers.mjs WATCHER PACKAGE-FOLDER ROOT: a line "there PATH", "gone PATH" or "changed PATH" for every event.
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";

const [watcher, folder, root] = process.argv.slice(2);
const load = createRequire(path.join(folder, "package.json"));
const tell = (kind, file) => process.stdout.write(`${kind} ${file}\n`);
const isOurs = (file) => file.split(path.sep).includes(".noclobber");

const watch = {
  // The kernel's events, as in VS Code: without being told, it takes watchman where that is installed.
  async parcel() {
    const parcel = load("@parcel/watcher");
    const options = { backend: "inotify", ignore: ["**/.noclobber"] };
    await parcel.subscribe(root, (error, events) => {
      for (const event of events ?? []) tell(event.type === "delete" ? "gone" : "there", event.path);
    }, options);
  },
  async chokidar() {
    const { watch } = await import(load.resolve("chokidar"));
    const options = { ignored: isOurs, ignoreInitial: true };
    watch(root, options).on("all", (event, file) => tell(event.startsWith("unlink") ? "gone" : "there", file));
  },
  // webpack's, which is told the files that it is to watch.
  async watchpack() {
    const Watchpack = load("watchpack");
    const missing = process.env.WATCHED.split(":").map((name) => path.join(root, name));
    const files = fs.readdirSync(root, { recursive: true }).map((name) => path.join(root, name));
    const pack = new Watchpack({ aggregateTimeout: 20 });
    pack.on("change", (file, mtime) => tell(mtime === null ? "gone" : "there", file));
    pack.on("remove", (file) => tell("gone", file));
    pack.watch({ files: files.filter((file) => !isOurs(file) && fs.statSync(file).isFile()), missing });
  },
  async "fs.watch"() {
    const told = (event, name) => tell("changed", path.join(root, name));
    // Node 20 gives up, with an error, if a folder disappears while it looks at it.
    fs.watch(root, { recursive: true }, told).on("error", () => {});
  },
};
await watch[watcher]();
setInterval(() => {}, 1 << 30);
