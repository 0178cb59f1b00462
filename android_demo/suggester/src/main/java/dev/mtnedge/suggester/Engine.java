package dev.mtnedge.suggester;

import ai.onnxruntime.NodeInfo;
import ai.onnxruntime.OnnxJavaType;
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OnnxValue;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtLoggingLevel;
import ai.onnxruntime.OrtSession;
import ai.onnxruntime.TensorInfo;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** The graphs {@code encode} and {@code suggest} on ONNX Runtime's CPU provider; safe to call from several threads. */
final class Engine {
    /** Log-probability at or below which a hypothesis broke the table's rules, and a floor that gives up those only. */
    static final double DEAD = -1e8;
    private static final String NEW = "new_";
    private static final String KEYS = "session_keys";
    private static final String HISTORY = "session_history";

    /** A tensor that outlives a run: its bytes lie outside the heap, and every run reads them where they are. */
    static final class Value {
        final OnnxJavaType type;
        final long[] shape;
        final ByteBuffer bytes;

        Value(OnnxJavaType type, ByteBuffer bytes, long... shape) {
            this.type = type;
            this.bytes = bytes;
            this.shape = shape;
        }
    }

    /** What a search found, best first. */
    static final class Hypotheses {
        /** [beam][steps] with {@code <eos>}, then {@code <pad>}; without the settled tokens. */
        final int[][] tokens;
        /** [beam] log-probabilities. */
        final float[] scores;
        /** Log-probability of all tokens that the first step allows. */
        final float mass;

        Hypotheses(int[][] tokens, float[] scores, float mass) {
            this.tokens = tokens;
            this.scores = scores;
            this.mass = mass;
        }
    }

    final int vocabSize;
    final int maxTokens;
    final int maxQueries;
    /** The state of a session without queries. */
    final Map<String, Value> start;
    private final OrtEnvironment environment = OrtEnvironment.getEnvironment();
    /** The models' bytes, which ONNX Runtime may go on reading. */
    private final List<ByteBuffer> kept = new ArrayList<>();
    private final OrtSession encode;
    private final OrtSession suggest;
    /** Of models that remember a user's earlier sessions; null for others. */
    private final OrtSession history;
    private final Map<String, Value> nothing = new HashMap<>();
    /** The table of a search that is over, for the next one: memory outside the heap comes back late. */
    private final AtomicReference<ByteBuffer> spare = new AtomicReference<>();
    /** Closing waits for the runs at work. */
    private final ReadWriteLock open = new ReentrantReadWriteLock();
    private boolean closed;

    Engine(Bundle bundle, int threads) throws SuggesterException {
        vocabSize = bundle.model.get("vocab_size").asInt();
        maxTokens = bundle.model.get("max_tokens").asInt();
        maxQueries = bundle.model.get("max_queries").asInt();
        List<OrtSession> graphs = new ArrayList<>();
        try {
            for (String name : bundle.model.get("levels").asInt() == 3
                    ? Arrays.asList("encode", "suggest", "history") : Arrays.asList("encode", "suggest")) {
                graphs.add(session(bundle, name, threads));
            }
            encode = graphs.get(0);
            suggest = graphs.get(1);
            history = graphs.size() > 2 ? graphs.get(2) : null;
            for (OrtSession graph : graphs) {
                addNothing(graph);
            }
            start = append(new int[] {Tokenizer.BOS}, nothing);
        } catch (SuggesterException | OrtException | RuntimeException error) {
            for (OrtSession graph : graphs) {
                close(graph);
            }
            throw error instanceof SuggesterException ? (SuggesterException) error : failed(error);
        }
    }

    /**
     * Begins to load ONNX Runtime's library on a thread of its own, which takes as long as all checks of a bundle;
     * whoever needs it waits for it, and meets the error when there was one.
     */
    static void loadRuntime() {
        Thread thread = new Thread(() -> {
            try {
                OrtEnvironment.getEnvironment();
            } catch (LinkageError | RuntimeException error) {
                // The constructor meets it again and tells.
            }
        }, "mtn-edge loading");
        thread.setDaemon(true);
        thread.start();
    }

    /** The state after one more query, 1 to {@code maxTokens} tokens long. */
    Map<String, Value> append(int[] tokens, Map<String, Value> state) throws SuggesterException {
        enter();
        try {
            Map<String, Value> feeds = new HashMap<>(state);
            if (history != null && isStart(tokens) && state.get(KEYS).shape[2] > 0) {
                feeds = new HashMap<>(nothing);
                feeds.putAll(run(history, state));
            }
            Map<String, Value> after = new HashMap<>(feeds);
            feeds.put("tokens", integers(tokens, tokens.length));
            feeds.put("embedded", embed(tokens));
            after.putAll(run(encode, feeds));
            return Collections.unmodifiableMap(after);
        } catch (OrtException error) {
            throw failed(error);
        } finally {
            open.readLock().unlock();
        }
    }

    /** The state in which the same user's next session begins, after the session of {@code state}. */
    Map<String, Value> next(Map<String, Value> state) throws SuggesterException {
        return state.containsKey(HISTORY) ? append(new int[] {Tokenizer.BOS}, state) : start;
    }

    /** The best token sequences under a constraint; {@code floor} is a log-probability relative to the mass. */
    Hypotheses search(Map<String, Value> state, PrefixConstraint.Constraint constraint, int beam, int maxSteps,
            double floor, Call call) throws SuggesterException, Call.Ended {
        enter();
        try (OrtSession.RunOptions options = new OrtSession.RunOptions()) {
            options.setLogLevel(OrtLoggingLevel.ORT_LOGGING_LEVEL_FATAL);  // a run that was ended on purpose is no news
            call.attach(() -> terminate(options));
            try {
                call.check();
                Map<String, Value> feeds = new HashMap<>(state);
                feeds.putAll(asked(constraint, beam, maxSteps, (float) floor));
                return search(feeds, options);
            } catch (OrtException error) {  // there is no exception of its own for a run that was ended
                call.check();
                throw failed(error);
            } finally {
                call.detach();
            }
        } catch (OrtException error) {
            throw failed(error);
        } finally {
            open.readLock().unlock();
        }
    }

    /** Lets go of the model, after the runs that are at work in it. */
    void close() {
        open.writeLock().lock();
        try {
            if (!closed) {
                closed = true;
                close(encode);
                close(suggest);
                close(history);
                kept.clear();
            }
        } finally {
            open.writeLock().unlock();
        }
    }

    private void enter() throws SuggesterException {
        open.readLock().lock();
        if (closed) {
            open.readLock().unlock();
            throw new SuggesterException("closed", "the suggester is closed; open the bundle again");
        }
    }

    private OrtSession session(Bundle bundle, String name, int threads) throws SuggesterException {
        String file = bundle.graph(name);
        ByteBuffer model = direct(bundle.file(file));
        try (OrtSession.SessionOptions options = new OrtSession.SessionOptions()) {
            options.setIntraOpNumThreads(threads);
            options.setCPUArenaAllocator(false);  // half a megabyte less, and no slower
            options.setExecutionMode(OrtSession.SessionOptions.ExecutionMode.SEQUENTIAL);
            options.addConfigEntry("session.intra_op.allow_spinning", "0");
            options.setSessionLogLevel(OrtLoggingLevel.ORT_LOGGING_LEVEL_FATAL);  // faults come as exceptions
            if (file.endsWith(".ort")) {  // no copy of the file is made
                options.addConfigEntry("session.use_ort_model_bytes_directly", "1");
                kept.add(model);
            }
            return environment.createSession(model, options);
        } catch (OrtException error) {
            throw new SuggesterException("bad-graph", "`" + file + "` cannot be loaded by ONNX Runtime "
                    + environment.getVersion() + "; use the version that the bundle's manifest names", error);
        }
    }

    private void addNothing(OrtSession graph) throws OrtException {
        for (Map.Entry<String, NodeInfo> input : graph.getInputInfo().entrySet()) {
            if (input.getKey().startsWith("session_") || input.getKey().startsWith("memory_")) {
                TensorInfo info = (TensorInfo) input.getValue().getInfo();
                long[] shape = info.getShape();
                long size = 1;
                for (int axis = 0; axis < shape.length; axis++) {
                    shape[axis] = Math.max(shape[axis], 0);  // nothing along a dynamic axis
                    size *= shape[axis];
                }
                nothing.put(input.getKey(), new Value(info.type, buffer((int) size * info.type.size), shape));
            }
        }
    }

    /** Embeddings of tokens: the table is in the search's graph alone, which gives them before its first step. */
    private Value embed(int[] tokens) throws OrtException {
        Map<String, Value> feeds = new HashMap<>(nothing);
        feeds.putAll(asked(new PrefixConstraint.Constraint(tokens, new byte[vocabSize], 0), 1, 0, 0));
        return run(suggest, feeds, Collections.singletonList("embedded")).get("embedded");
    }

    private Map<String, Value> asked(PrefixConstraint.Constraint constraint, int beam, int maxSteps, float floor) {
        Map<String, Value> feeds = new HashMap<>();
        feeds.put("start_tokens", integers(constraint.startTokens, constraint.startTokens.length));
        long states = constraint.nextState.length / vocabSize;
        feeds.put("next_state", new Value(OnnxJavaType.UINT8, table(constraint.nextState), states, vocabSize));
        feeds.put("start_state", integers(new int[] {constraint.startState}, 1));
        feeds.put("beam", integers(new int[] {beam}, 1));
        feeds.put("max_steps", integers(new int[] {maxSteps}));
        feeds.put("floor", new Value(OnnxJavaType.FLOAT, buffer(4).putFloat(0, floor)));
        return feeds;
    }

    private ByteBuffer table(byte[] nextState) {
        ByteBuffer last = spare.getAndSet(null);
        ByteBuffer table = last != null && last.capacity() >= nextState.length ? last : buffer(nextState.length);
        table.clear();
        table.put(nextState).flip();
        return table;
    }

    private Hypotheses search(Map<String, Value> feeds, OrtSession.RunOptions options) throws OrtException {
        Map<String, OnnxTensor> inputs = tensors(suggest, feeds);
        HashSet<String> wanted = new HashSet<>(Arrays.asList("tokens", "scores", "mass"));
        try (OrtSession.Result found = suggest.run(inputs, wanted, options)) {
            OnnxTensor written = tensor(found, "tokens");
            long[] shape = written.getInfo().getShape();
            int[][] tokens = new int[(int) shape[0]][(int) shape[1]];
            LongBuffer numbers = written.getLongBuffer();
            for (int[] row : tokens) {
                for (int step = 0; step < row.length; step++) {
                    row[step] = (int) numbers.get();
                }
            }
            float[] scores = new float[tokens.length];
            tensor(found, "scores").getFloatBuffer().get(scores);
            return new Hypotheses(tokens, scores, tensor(found, "mass").getFloatBuffer().get(0));
        } finally {
            close(inputs);
            spare.set(feeds.get("next_state").bytes);
        }
    }

    /** The parts of a session's state that a graph makes of {@code values}, of which it takes what it needs. */
    private Map<String, Value> run(OrtSession graph, Map<String, Value> values) throws OrtException {
        Map<String, Value> made = new HashMap<>();
        for (Map.Entry<String, Value> entry : run(graph, values, graph.getOutputNames()).entrySet()) {
            String name = entry.getKey();
            made.put(name.startsWith(NEW) ? name.substring(NEW.length()) : name, entry.getValue());
        }
        return made;
    }

    private Map<String, Value> run(OrtSession graph, Map<String, Value> values, Iterable<String> outputs)
            throws OrtException {
        HashSet<String> wanted = new HashSet<>();
        for (String name : outputs) {
            wanted.add(name);
        }
        Map<String, OnnxTensor> inputs = tensors(graph, values);
        try (OrtSession.Result found = graph.run(inputs, wanted)) {
            Map<String, Value> made = new HashMap<>();
            for (Map.Entry<String, OnnxValue> entry : found) {
                TensorInfo info = ((OnnxTensor) entry.getValue()).getInfo();
                ByteBuffer bytes = direct(((OnnxTensor) entry.getValue()).getByteBuffer());
                made.put(entry.getKey(), new Value(info.type, bytes, info.getShape()));
            }
            return made;
        } finally {
            close(inputs);
        }
    }

    private Map<String, OnnxTensor> tensors(OrtSession graph, Map<String, Value> values) throws OrtException {
        Map<String, OnnxTensor> tensors = new HashMap<>();
        for (String name : graph.getInputNames()) {
            Value value = values.get(name);
            ByteBuffer bytes = value.bytes.duplicate().order(ByteOrder.nativeOrder());
            tensors.put(name, OnnxTensor.createTensor(environment, bytes, value.shape, value.type));
        }
        return tensors;
    }

    private static OnnxTensor tensor(OrtSession.Result result, String name) {
        return (OnnxTensor) result.get(name).get();
    }

    private static boolean isStart(int[] tokens) {
        return tokens.length == 1 && tokens[0] == Tokenizer.BOS;
    }

    private static Value integers(int[] numbers, long... shape) {
        ByteBuffer bytes = buffer(8 * numbers.length);
        for (int at = 0; at < numbers.length; at++) {
            bytes.putLong(8 * at, numbers[at]);
        }
        return new Value(OnnxJavaType.INT64, bytes, shape);
    }

    private static ByteBuffer buffer(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    private static ByteBuffer direct(ByteBuffer bytes) {
        if (bytes.isDirect()) {
            return bytes;
        }
        ByteBuffer copy = buffer(bytes.remaining());
        copy.put(bytes).rewind();
        return copy;
    }

    private static void terminate(OrtSession.RunOptions options) {
        try {
            options.setTerminate(true);
        } catch (OrtException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void close(Map<String, OnnxTensor> tensors) {
        for (OnnxTensor tensor : tensors.values()) {
            tensor.close();
        }
    }

    private static void close(OrtSession graph) {
        try {
            if (graph != null) {
                graph.close();
            }
        } catch (OrtException error) {
            throw new IllegalStateException(error);
        }
    }

    private static SuggesterException failed(Exception error) {
        return new SuggesterException("failed", "the model failed (" + error.getMessage() + "); open the bundle again",
                error);
    }
}
