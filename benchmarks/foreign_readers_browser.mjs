// Runs a sentence encoder in int8 by Transformers.js in headless Chromium; see foreign_readers.py.
// Reads a request from standard input, writes {"Chromium: task": results}. All files, those of the
// runtime included, come from a server on the loopback interface.
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const TASK = "feature-extraction";
const NAME = `Chromium: ${TASK}, int8`;
const TYPES = { ".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm" };
const PAGE = `<!doctype html><script type="module">
import { env, pipeline } from "/modules/@huggingface/transformers/dist/transformers.min.js";
env.allowRemoteModels = false;
env.allowLocalModels = true;
env.localModelPath = "/models/";
env.backends.onnx.wasm.wasmPaths = "/modules/onnxruntime-web/dist/";
env.backends.onnx.wasm.numThreads = 1;
window.embed = async (texts) => {
  const run = await pipeline("${TASK}", "export", { dtype: "q8", device: "wasm" });
  return (await run(texts, { pooling: "mean", normalize: true })).tolist();
};
</script>`;

// The package with Chromium unpacks its libraries on Amazon Linux alone, unless it is told so.
process.env.AWS_EXECUTION_ENV ??= "AWS_Lambda_nodejs22.x";
const modules = process.env.MODULES;
const { exports, texts } = JSON.parse(readFileSync(0, "utf8"));

async function launch() {
  const { resolve } = createRequire(path.join(modules, "index.js"));
  const load = async (name) => (await import(pathToFileURL(resolve(name)).href)).default;
  const [chromium, puppeteer] = [await load("@sparticuz/chromium"), await load("puppeteer-core")];
  const executablePath = await chromium.executablePath();
  return puppeteer.launch({ args: chromium.args, executablePath, headless: "shell" });
}

const roots = { modules, models: path.dirname(exports[TASK]) };
const server = createServer(async (request, response) => {
  const [, root, ...rest] = new URL(request.url, "http://localhost").pathname.split("/");
  if (root === "") return response.setHeader("Content-Type", "text/html").end(PAGE);
  if (rest[0] === "export") rest[0] = path.basename(exports[TASK]);
  try {
    const content = await readFile(path.join(roots[root], ...rest));
    const type = TYPES[path.extname(rest.at(-1))] ?? "application/octet-stream";
    response.setHeader("Content-Type", type).end(content);
  } catch {
    response.writeHead(404).end();
  }
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const results = {};
let browser;
try {
  browser = await launch();
} catch (error) {
  results[NAME] = { skipped: String(error).split("\n")[0] };
}
if (browser) {
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    await page.waitForFunction("window.embed !== undefined");
    results[NAME] = await page.evaluate((inputs) => window.embed(inputs), texts);
  } catch (error) {
    results[NAME] = { error: String(error).split("\n")[0] };
  }
  await browser.close();
}
server.close();
console.log(JSON.stringify(results));
