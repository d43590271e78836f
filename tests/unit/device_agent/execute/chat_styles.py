"""Chat templates in the styles that models have, written for the tests, and conversations for them."""

from __future__ import annotations

CHATML = """{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nBe short.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if thinks is defined and thinks is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
LLAMA = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set said = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set said = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{- 'Tools: ' + tools | tojson(indent=4) }}{%- endif %}
{{- 'Today: ' + strftime_now('a day') + '\\n\\n' + said + '<|eot_id|>' }}
{%- for message in messages %}
    {%- if not message.role in ['user', 'assistant'] %}
        {{- raise_exception('Roles are user and assistant, not ' + message.role) }}
    {%- endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
GEMMA = """{{ bos_token }}
{% if messages[0]['role'] == 'system' %}
    {% set before = messages[0]['content'] + '\\n\\n' %}
    {% set turns = messages[1:] %}
{% else %}
    {% set before = '' %}
    {% set turns = messages %}
{% endif %}
{% for message in turns %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception("Turns alternate: user, model, user, model") }}
    {% endif %}
<start_of_turn>{{ 'model' if message['role'] == 'assistant' else message['role'] }}
{{ (before if loop.first else '') + message['content'] | trim }}<end_of_turn>
{% endfor %}
{% if add_generation_prompt %}
<start_of_turn>model
{% endif %}
"""
MISTRAL = """{%- set ns = namespace(system='', asked=0) %}
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set ns.system = message.content + '\\n\\n' %}
        {%- continue %}
    {%- endif %}
    {%- if message.role == 'user' %}
        {%- set ns.asked = ns.asked + 1 %}
        {{- '[INST] ' + (ns.system if ns.asked == 1 else '') + message.content + ' [/INST]' }}
    {%- else %}
        {%- generation %}{{- ' ' + message.content + eos_token }}{%- endgeneration %}
    {%- endif %}
{%- endfor %}
"""
DATA = """{% macro field(name, value) %}{{ name }}={{ value | tojson }};{% endmacro %}
{% for message in messages %}{% for name, value in message.items() %}{{ field(name, value) }}{% endfor %}
{{ dict(message, n=loop.index) | tojson(sort_keys=true, separators=(',', ':')) }} {{ missing }}
{{ dict.fromkeys('ab', 1) }}{{ pad_token }}
{% endfor %}
"""
STYLES = {"chatml": CHATML, "llama": LLAMA, "gemma": GEMMA, "mistral": MISTRAL, "data": DATA}

USER = {"role": "user", "content": "What is <b>a sea</b>, & why? "}
CONVERSATIONS = {
    "one turn": [USER],
    "a system prompt": [{"role": "system", "content": " Be brief. \n"}, USER],
    "three turns": [
        USER,
        {"role": "assistant", "content": "Water: \u00e4\u6d77\U0001f30a"},
        {"role": "user", "content": "And\n a lake?"},
    ],
}
# Of a tokenizer that knows all of the styles.
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>"]
SPECIAL += ["<|eot_id|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"]
