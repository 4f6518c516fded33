function [c, options] = chop(x, options)
%CHOP  Round the elements of an array to a number format.
%   C = CHOP(X, OPTIONS) rounds each element of the real array X to the
%   format OPTIONS.format and gives them back in X's class. The call and
%   its options are those of Higham and Pranesh's chop:
%     format     'q43', 'q52', 'b' (bfloat16), 'h' (half, the default),
%                's', 'd', 'c' (custom: by params); and any name that
%                torch-dtypes has: 'posit16es2', 'e5m5', 'mxfp4'.
%     params     [t emax]: significand bits, the hidden one included, and
%                largest exponent; for 'c'.
%     subnormal  0: zero is the only number below the smallest normal one.
%                Default: 0 for bfloat16, else 1.
%     round      1 nearest even (default), 2 up, 3 down, 4 toward zero,
%                5 stochastic, 6 stochastic with equal probability.
%     flip, p    1: flip a random significand bit with probability p.
%     explim     0: no limit of the exponent. Default 1.
%     randfunc   randfunc(n) gives n numbers from 0 to 1 for modes 5, 6.
%   Options persist: CHOP([], OPTIONS) sets them, C = CHOP(X) uses the last
%   ones, [~, OPTIONS] = CHOP returns them.
%
%   In Octave, one torch-dtypes process does the work and lives as long as
%   Octave does. It is found on PATH; the environment variable TORCH_DTYPES
%   may name another. In MATLAB, its own Python (pyenv) does it.
%
%   Example:
%     options.format = 'q43'; chop([], options)
%     chop([1.3 7.7])      % 1.25 7.5

persistent last

if isempty(last) || (nargin == 2 && ~isempty(options))
  if nargin < 2, options = struct(); end
  last = complete(options, last);
end
if nargin == 0 || isempty(x)
  c = [];
else
  if ~isreal(x) || ~isfloat(x)
    kinds = {'complex', 'real'};
    error('chop:input', 'expected a real array of single or double numbers, but got %s %s', ...
          kinds{isreal(x) + 1}, class(x));
  end
  c = reshape(cast(request(double(x(:)), last), class(x)), size(x));
end
options = last;
if nargout == 0 && isempty(c), clear c, end
end

function done = complete(given, last)
% The options with the defaults of those that are missing or empty.
done = struct('format', 'h', 'params', [], 'subnormal', [], 'round', 1, 'flip', 0, 'p', 0.5, ...
              'explim', 1, 'randfunc', []);
names = fieldnames(given);
for i = 1:numel(names)
  if ~isfield(done, names{i})
    error('chop:options', 'expected the options %s, but got %s', ...
          strjoin(fieldnames(done)', ', '), names{i});
  end
  if ~isempty(given.(names{i})), done.(names{i}) = given.(names{i}); end
end
if ismember(done.format, {'c', 'custom'})
  if isempty(done.params) && ~isempty(last), done.params = last.params; end
  if isempty(done.params)
    error('chop:options', 'expected options.params = [t emax] with options.format = ''c''');
  end
else
  switch done.format
    case {'q43', 'fp8-e4m3'},       done.params = [4 7];
    case {'q52', 'fp8-e5m2'},       done.params = [3 15];
    case {'h', 'half', 'fp16'},     done.params = [11 15];
    case {'b', 'bfloat16'},         done.params = [8 127];
    case {'s', 'single', 'fp32'},   done.params = [24 127];
    case {'d', 'double', 'fp64'},   done.params = [53 1023];
    otherwise,                      done.params = [];
  end
end
if isempty(done.subnormal), done.subnormal = ~ismember(done.format, {'b', 'bfloat16'}); end
end

function c = request(x, options)
% Round the column x by the torch-dtypes process, or MATLAB's Python.
draws = [];
if ismember(options.round, [5 6]) && ~isempty(options.randfunc)
  draws = double(options.randfunc(numel(x)));
end
line = sprintf(['{"count": %d, "format": "%s", "params": %s, "subnormal": %d, "round": %d, ' ...
                '"flip": %d, "p": %.17g, "explim": %d, "draws": %d, "seed": %d}'], ...
               numel(x), options.format, list(options.params), options.subnormal, options.round, ...
               options.flip, options.p, options.explim, numel(draws), seed(options));
if exist('OCTAVE_VERSION', 'builtin')
  c = ask(line, [x; draws(:)]);
else
  c = double(py.torch_dtypes.compat.matlab.answer(line, [x; draws(:)]'));
  c = c(:);
end
end

function text = list(numbers)
text = ['[' strjoin(arrayfun(@(n) sprintf('%d', n), numbers, 'UniformOutput', false), ', ') ']'];
end

function number = seed(options)
% Random numbers depend on the state of rand alone, as those of the original.
if ismember(options.round, [5 6]) || options.flip, number = floor(rand * 2^53); else, number = 0; end
end

function c = ask(line, numbers)
% Octave: write the request to the process, and read what it answers.
persistent to from
if isempty(to)
  program = getenv('TORCH_DTYPES');
  if isempty(program), program = 'torch-dtypes'; end
  [to, from, pid] = popen2(program, {'chop', '--serve'});
  if pid < 0, error('chop:process', 'cannot start %s: set TORCH_DTYPES to its path', program); end
  fcntl(from, F_SETFL, 0);  % wait for answers
end
fprintf(to, '%s\n', line);
fwrite(to, numbers, 'double');
fflush(to);
head = fread(from, 2, 'double');  % fgetl would wait for a character after the line's end
if numel(head) < 2
  to = [];
  error('chop:process', ['the torch-dtypes process has ended: see its message above, and set ' ...
                         'TORCH_DTYPES to the path of the torch-dtypes command']);
end
if ~head(1), error('chop:options', '%s', fread(from, head(2), 'char=>char')'); end
c = fread(from, head(2), 'double');
end
