// Runs exports by the pipelines of Transformers.js; see foreign_readers.py.
// Reads a request from standard input, writes {"Transformers.js: task": results}.
import { readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const entry = "@huggingface/transformers/dist/transformers.node.mjs";
const { env, pipeline, version } = await import(
  pathToFileURL(path.join(process.env.MODULES, entry)).href
);
const { exports, texts, question, new_tokens } = JSON.parse(readFileSync(0, "utf8"));
env.allowRemoteModels = false;

const runs = {
  "feature-extraction": async (run) =>
    (await run(texts, { pooling: "mean", normalize: true })).tolist(),
  "fill-mask": async (run) => {
    const found = await run(texts[0].replace("cold", "[MASK]"), { top_k: 5 });
    return found.map((prediction) => [prediction.token_str, prediction.score]);
  },
  "text-classification": async (run) => {
    const results = await run(texts, { top_k: null });
    return results.map((labels) => Object.fromEntries(labels.map((l) => [l.label, l.score])));
  },
  "token-classification": async (run) => {
    const results = await run(texts, { ignore_labels: [] });
    return results.map((tokens) => tokens.map((token) => [token.entity, token.score]));
  },
  // The logits, since pipelines differ in how they choose among spans. Token types have to be asked
  // for: by default, this tokenizer returns them for certain classes of tokenizers alone.
  "question-answering": async (run) => {
    const inputs = run.tokenizer(question.question, {
      text_pair: question.context,
      return_token_type_ids: true,
    });
    const { start_logits, end_logits } = await run.model(inputs);
    return [start_logits.tolist()[0], end_logits.tolist()[0]];
  },
  "text-generation": async (run) => {
    const options = { max_new_tokens: new_tokens, do_sample: false, return_full_text: false };
    const results = [];
    for (const text of texts) results.push((await run(text, options))[0].generated_text);
    return results;
  },
  "text2text-generation": async (run) => {
    const results = [];
    for (const text of texts)
      results.push((await run(text, { max_new_tokens: new_tokens }))[0].generated_text);
    return results;
  },
};

const results = {};
for (const [variant, folder] of Object.entries(exports)) {
  const [task, quantized = "float32"] = variant.split(", ");
  const dtype = { float32: "fp32", float16: "fp16", int8: "q8", int4: "q4" }[quantized];
  const name = `Transformers.js: ${variant}`;
  env.localModelPath = path.dirname(folder);
  try {
    const run = await pipeline(task, path.basename(folder), { dtype });
    results[name] = await runs[task](run);
  } catch (error) {
    results[name] = { error: String(error).split("\n")[0] };
  }
}
console.log(JSON.stringify(results));
