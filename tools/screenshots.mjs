// Screenshots of reports in headless Chromium, light and dark: PAGE.light.png and PAGE.dark.png.
//
//   npm install --no-save puppeteer-core @sparticuz/chromium
//   node tools/screenshots.mjs report.html mistakes.html
//
// $CHROMIUM names a Chromium to use in place of the package's.
import { resolve } from "node:path";
import puppeteer from "puppeteer-core";

async function start() {
  if (process.env.CHROMIUM) {
    return puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
  }
  const { default: chromium } = await import("@sparticuz/chromium");
  const executablePath = await chromium.executablePath();
  return puppeteer.launch({ executablePath, args: chromium.args, headless: "shell" });
}

const browser = await start();
for (const file of process.argv.slice(2)) {
  for (const scheme of ["light", "dark"]) {
    const page = await browser.newPage();
    await page.setViewport({ width: 1100, height: 900 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await page.goto(`file://${resolve(file)}`);
    await page.screenshot({ path: `${file.replace(/\.html$/, "")}.${scheme}.png`, fullPage: true });
    await page.close();
  }
}
await browser.close();
