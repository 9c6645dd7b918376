// What the website of a page gives it, and is told by it; tests/support/browser.py is its other side.

export const given: Record<string, string> = JSON.parse(decodeURIComponent(location.hash.slice(1)));
export const told = `${location.origin}/told`;

export async function tell(line: string) {
  await fetch(told, { method: "POST", body: line });
}

// Runs a page, and tells the website how it ended.
export async function run(page: () => Promise<void>) {
  try {
    await page();
    await tell("end");
  } catch (error) {
    await tell(`failed: ${error instanceof Error ? error.stack : error}`);
  }
}
