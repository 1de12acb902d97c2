// An MCP server on standard input and output that tells what Jackson has read of a call. With the argument "fold" it takes names
// whatever their letters.
import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.MapperFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

public class Reader {
    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Message {
        public String method;
        public Params params = new Params();
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Params {
        public String protocolVersion;
        public String name;
        public Arguments arguments = new Arguments();
    }

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Arguments {
        public String disk;
    }

    public static void main(String[] options) throws Exception {
        boolean folds = options.length > 0 && options[0].equals("fold");
        JsonMapper mapper = JsonMapper.builder().configure(MapperFeature.ACCEPT_CASE_INSENSITIVE_PROPERTIES, folds).build();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode id = mapper.readTree(line).get("id");
            if (id == null) {
                continue;
            }
            Map<String, Object> answer = new HashMap<>();
            answer.put("jsonrpc", "2.0");
            answer.put("id", id);
            try {
                answer.put("result", result(mapper, mapper.readValue(line, Message.class)));
            } catch (JsonProcessingException error) {
                answer.put("error", Map.of("code", -32602, "message", "the params are of other types"));
            }
            System.out.println(mapper.writeValueAsString(answer));
        }
    }

    private static Map<String, Object> result(JsonMapper mapper, Message message) throws Exception {
        switch (message.method) {
            case "initialize":
                return Map.of("protocolVersion", message.params.protocolVersion, "capabilities", Map.of("tools", Map.of()),
                        "serverInfo", Map.of("name", "reader", "version", "1"));
            case "tools/list":
                Map<String, Object> schema = Map.of("type", "object", "properties", Map.of("disk", Map.of("type", "string")));
                return Map.of("tools", List.of(Map.of("name", "look", "inputSchema", schema),
                        Map.of("name", "shut", "inputSchema", schema)));
            case "tools/call":
                Map<String, Object> seen = new HashMap<>();
                seen.put("name", message.params.name);
                seen.put("disk", message.params.arguments == null ? null : message.params.arguments.disk);
                return Map.of("content", List.of(Map.of("type", "text", "text", mapper.writeValueAsString(seen))));
            default:
                return Map.of();
        }
    }
}
