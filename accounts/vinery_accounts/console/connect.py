"""Connect: the settings of each client, with the address of this server and a model of it."""

from typing import Any, Final

from vinery_accounts.access.served import for_example, visible_models
from vinery_accounts.console.page import Page, at

# A name, where the settings belong, and the settings. `docs/guides/clients.md` has the same clients
# with notes.
_CLIENTS: Final = (
    ("curl", "A shell", """curl <base>/chat/completions \\
  -H "Authorization: Bearer <key>" -H "Content-Type: application/json" \\
  -d '{"model": "<model>", "messages": [{"role": "user", "content": "Hello!"}]}'"""),
    ("OpenAI for Python", "pip install openai", """from openai import OpenAI

client = OpenAI(base_url="<base>", api_key="<key>")
answer = client.chat.completions.create(
    model="<model>", messages=[{"role": "user", "content": "Hello!"}]
)
print(answer.choices[0].message.content)"""),
    ("OpenAI for Node", "npm install openai", """import OpenAI from "openai";

const client = new OpenAI({ baseURL: "<base>", apiKey: "<key>" });
const answer = await client.chat.completions.create({
  model: "<model>", messages: [{ role: "user", content: "Hello!" }],
});
console.log(answer.choices[0].message.content);"""),
    ("Azure OpenAI", "pip install openai", """from openai import AzureOpenAI

client = AzureOpenAI(azure_endpoint="<root>", api_key="<key>", api_version="2024-10-21")
# model="<model>" is the deployment."""),
    ("LangChain", "pip install langchain-openai", """from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="<model>", base_url="<base>", api_key="<key>")
print(model.invoke("Hello!").content)"""),
    ("LlamaIndex", "pip install llama-index-llms-openai-like",
     """from llama_index.llms.openai_like import OpenAILike

model = OpenAILike(model="<model>", api_base="<base>", api_key="<key>", is_chat_model=True)
print(model.complete("Hello!"))"""),
    ("Pydantic AI", 'pip install "pydantic-ai-slim[openai]"', "ENV"),
    ("LiteLLM", "pip install litellm", """import litellm

answer = litellm.completion(
    model="hosted_vllm/<model>", api_base="<base>", api_key="<key>",
    messages=[{"role": "user", "content": "Hello!"}],
)"""),
    ("Open WebUI", "Its environment", "OPENAI_API_BASE_URL=<base> OPENAI_API_KEY=<key>"),
    ("LibreChat", "librechat.yaml", """endpoints:
  custom:
    - name: Vinery
      apiKey: <key>
      baseURL: <base>
      models: { default: ["<model>"], fetch: true }
      titleConvo: true
      titleModel: current_model"""),
    ("Continue", "~/.continue/config.yaml", """models:
  - name: Vinery
    provider: openai
    model: <model>
    apiBase: <base>
    apiKey: <key>
    roles: [chat, edit, apply]"""),
    ("Cline and Roo Code", "Settings, API Provider: OpenAI Compatible", "VALUES"),
    ("Codex", "~/.codex/config.toml", """model = "<model>"
model_provider = "vinery"

[model_providers.vinery]
name = "Vinery"
base_url = "<base>"
env_key = "OPENAI_API_KEY"
wire_api = "responses\""""),
    ("Aider", "A shell",
     "aider --openai-api-base <base> --openai-api-key <key> --model 'openai/<model>'"),
    ("n8n", "The credential OpenAI", "VALUES"),
    ("Anthropic for Python", "pip install anthropic", """from anthropic import Anthropic

client = Anthropic(base_url="<root>", api_key="<key>")
message = client.messages.create(
    model="<model>", max_tokens=100, messages=[{"role": "user", "content": "Hello!"}]
)"""),
    ("Claude Code", "A shell", """export ANTHROPIC_BASE_URL=<root> ANTHROPIC_AUTH_TOKEN=<key>
claude --model '<model>' --disallowedTools WebSearch"""),
    ("AI SDK", "npm install ai @ai-sdk/openai-compatible",
     """import { createOpenAICompatible } from "@ai-sdk/openai-compatible";

const vinery = createOpenAICompatible({ name: "vinery", baseURL: "<base>", apiKey: "<key>" });
const model = vinery("<model>");"""),
    ("opencode", "opencode.json", """{"provider": {"vinery": {
  "npm": "@ai-sdk/openai-compatible", "name": "Vinery",
  "options": {"baseURL": "<base>", "apiKey": "<key>"},
  "models": {"<model>": {"name": "<model>"}}
}}}"""),
    ("Qwen Code", "A shell", "ENV"),
    ("Semantic Kernel", "pip install semantic-kernel", "ENV"),
    ("Cohere", "For reranking", 'client = cohere.ClientV2(base_url="<root>", api_key="<key>")'),
    ("Load tools", "A shell", """aiperf profile --model '<model>' --url <root> --api-key <key> \\
    --endpoint-type chat --streaming --concurrency 8 --request-count 100"""),
)  # fmt: skip
_SHARED: Final = {
    "ENV": "export OPENAI_BASE_URL=<base> OPENAI_API_KEY=<key> OPENAI_MODEL='<model>'",
    "VALUES": "Base URL  <base>\nAPI key   <key>\nModel     <model>",
}


@at("connect/", "connect")
class Connect(Page):
    template_name = "console/connect.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        values = {"<root>": self.base_url(), "<base>": f"{self.base_url()}/v1", "<key>": "vny_..."}
        model = for_example(visible_models(self.access))
        chosen = self.request.GET.get("client")
        name, where, text = next((e for e in _CLIENTS if e[0] == chosen), _CLIENTS[0])
        text = _SHARED.get(text, text)
        for word, value in (values | {"<model>": model}).items():
            text = text.replace(word, value)
        context = {"clients": [each[0] for each in _CLIENTS], "client": name, "where": where}
        context |= {"settings": text, "model": model, "base_url": values["<base>"]}
        return super().get_context_data(**kwargs) | context
