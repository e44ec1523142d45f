// Runs a GGUF file in llama.cpp through node-llama-cpp: a line of JSON on standard input is a
// request, a line on standard output its answer.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [library, path, settings] = process.argv.slice(2);
const { contextSize, threads, embeds } = JSON.parse(settings);
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(library).href);
const llama = await getLlama({
    gpu: false, build: "never", progressLogs: false, logLevel: LlamaLogLevel.error, maxThreads: 0,
    logger: (level, message) => process.stderr.write(`${message}\n`),
});
const model = await llama.loadModel({ modelPath: path, gpuLayers: 0, useMmap: true });
const context = await model.createContext({
    contextSize, batchSize: contextSize, threads, sequences: 1, flashAttention: false,
    ignoreMemorySafetyChecks: true, ...(embeds ? { _embeddings: true } : {}),
});
const sequence = context.getSequence();

const encoded = (values) => Buffer.from(Float32Array.from(values).buffer).toString("base64");

// With the tokens as they are: ``LlamaEmbeddingContext`` adds the first and the last
async function embedding(tokens) {
    await sequence.clearHistory();
    for await (const _ of sequence.evaluate(tokens, { _noSampling: true })) break;
    return encoded(context._ctx.getEmbedding(tokens.length));
}

async function logits(tokens) {
    await sequence.clearHistory();
    const asked = tokens.map((token) => [token, { generateNext: { logits: true } }]);
    const rows = await sequence.controlledEvaluate(asked);
    return rows.map(({ next }) => {
        const values = new Float32Array(next.logits.size);
        for (const [token, value] of next.logits) values[token] = value;
        return encoded(values);
    });
}

// With the tokens that llama.cpp adds to a text
function cut(text) {
    const { bos, eos, sep, shouldPrependBosToken, shouldAppendEosToken } = model.tokens;
    const kind = model.vocabularyType;
    const first = kind === "wpm" || shouldPrependBosToken ? bos : null;
    const last = kind === "wpm" ? sep : shouldAppendEosToken || kind === "ugm" ? eos : null;
    return [first, ...model.tokenize(text, false), last].filter((token) => token != null);
}

async function answer({ texts, rows, wanted }) {
    if (texts) return texts.map(cut);
    const found = [];
    for (const row of rows) found.push(await (wanted === "logits" ? logits(row) : embedding(row)));
    return found;
}

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");
say({ ready: true, vocabulary: model.vocabularyType });
for await (const line of createInterface({ input: process.stdin })) {
    try {
        say({ result: await answer(JSON.parse(line)) });
    } catch (error) {
        say({ error: String(error?.message ?? error) });
    }
}
process.exit(0);
