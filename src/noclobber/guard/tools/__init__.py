"""
The guarded tools as a model sees them: names, JSON Schemas, calls and results, in the format of its API.

    tools = turn.tools(format="anthropic")
    answer = client.messages.create(model=..., messages=messages, tools=tools)
    results = [tools.call(block) for block in answer.content if block.type == "tool_use"]

| module | what it has |
|---|---|
| `definitions` | the tools: schema and function of each. The one source for every format and adapter |
| `arguments` | a model's arguments, checked against the schema |
| `answers` | what the model is told: a text, or a refusal's exact object |
| `listing` | names of files and folders, and lines that match |
| `formats` | how each API spells a tool, a call and a result |
| `tool_list` | `ToolList`: what `turn.tools()` returns |
"""
