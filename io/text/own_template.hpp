// A chat template in our own words for models made here. Without tools it renders as Qwen3's published
// template does (tests/real/check_chat_templates.py compares them under Jinja2); with tools it raises. A
// change gives it a new hash: then the old one stays on the list of known templates (chat_template.cpp) for
// models already made.
#pragma once

#include <string_view>

namespace tandem {

inline constexpr std::string_view kOwnTemplate =
    R"JINJA({#- Turns between <|im_start|> and <|im_end|>; reasoning in think tags, kept after the last question only. -#}
{%- if tools -%}
  {{- raise_exception('this chat template knows no tools') -}}
{%- endif -%}
{%- set last = namespace(question=messages | length - 1) -%}
{%- for turn in messages -%}
  {%- set answers_tool = turn.content.startswith('<tool_response>') and turn.content.endswith('</tool_response>') -%}
  {%- if turn.role == 'user' and not answers_tool -%}
    {%- set last.question = loop.index0 -%}
  {%- endif -%}
{%- endfor -%}
{%- for turn in messages -%}
  {%- set thought, said = '', turn.content -%}
  {%- if turn.role == 'assistant' -%}
    {%- if turn.reasoning_content is string -%}
      {%- set thought = turn.reasoning_content -%}
    {%- elif '</think>' in said -%}
      {%- set parts = said.split('</think>') -%}
      {%- set thought = parts[0].rstrip('\n').split('<think>')[-1].lstrip('\n') -%}
      {%- set said = parts[-1].lstrip('\n') -%}
    {%- endif -%}
    {%- if loop.index0 > last.question and (loop.last or thought) -%}
      {%- set said = '<think>\n' ~ thought.strip('\n') ~ '\n</think>\n\n' ~ said.lstrip('\n') -%}
    {%- endif -%}
  {%- endif -%}
  {{- '<|im_start|>' ~ turn.role ~ '\n' ~ said ~ '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' -}}
  {%- if enable_thinking is defined and enable_thinking is false -%}
    {{- '<think>\n\n</think>\n\n' -}}
  {%- endif -%}
{%- endif -%})JINJA";

}  // namespace tandem
